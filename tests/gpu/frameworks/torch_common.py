"""What the PyTorch programs share: a model of a given size, deterministic settings, the result line."""

import os

import result

# cuBLAS gives the same bits every time only with a fixed workspace; it reads this when it starts.
os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")

try:
    import torch
except Exception as problem:  # a broken installation raises more than ImportError
    result.unavailable(f"torch: {type(problem).__name__}: {problem}")

WIDTH = 2048
BATCH = 1024


def probe(options):
    if not torch.cuda.is_available():
        result.unavailable("torch: finds no CUDA device")
    if options.probe:
        result.available(torch.__version__)


def prepare(seed=7):
    torch.manual_seed(seed)
    torch.use_deterministic_algorithms(True, warn_only=True)
    torch.backends.cuda.matmul.allow_tf32 = False
    torch.backends.cudnn.benchmark = False


def make_model(mib):
    """Wide layers: parameters, gradients, Adam's moments and activations take about `mib` MiB together."""
    per_layer = 4 * WIDTH * WIDTH * 4 + 3 * BATCH * WIDTH * 4
    layers = max(2, (mib << 20) // per_layer)
    parts = []
    for _ in range(layers):
        parts += [torch.nn.Linear(WIDTH, WIDTH), torch.nn.GELU()]
    return torch.nn.Sequential(*parts, torch.nn.Linear(WIDTH, WIDTH)).cuda()


def batch(step):
    """Input and target of a step, the same in every run."""
    generator = torch.Generator().manual_seed(1000 + step)
    x = torch.randn(BATCH, WIDTH, generator=generator)
    return x.pin_memory(), (0.5 * x.roll(1, dims=1)).pin_memory()


def train(model, steps, step, data=batch):
    """Calls step(x, y) -> loss for every batch."""
    timed = result.Steps()
    for i in range(steps):
        x, y = data(i)
        timed.done(step(x.cuda(non_blocking=True), y.cuda(non_blocking=True)).item())
    return timed


def parameters_digest(model):
    return result.digest(p.detach().float().cpu().numpy() for p in model.parameters())


def report(timed, model, framework="torch"):
    timed.report(framework, torch.__version__, torch.cuda.get_device_name(), parameters_digest(model),
                 torch.cuda.max_memory_reserved())
