"""Fits polynomials to several signals, a coefficient for each point, by gradients that Dr.Jit takes and Adam."""

import hashlib

import drjit as dr
import numpy as np
from drjit.cuda.ad import Float

signals, points, degree, steps = 8, 40000, 4, 4
rng = np.random.default_rng(2)


class Signal:
    def __init__(self):
        self.x = rng.uniform(-1, 1, points).astype(np.float32)
        self.y = sum(rng.normal(size=points) * self.x**k for k in range(degree)).astype(np.float32)
        self.place, self.target = Float(self.x), Float(self.y)
        # Of each coefficient its value and Adam's two means.
        self.state = [[Float(np.zeros(points, np.float32)) for _ in range(3)] for _ in range(degree)]
        dr.eval(self.place, self.target, self.state)

    def step(self, number):
        coefficients = [Float(state[0]) for state in self.state]
        dr.enable_grad(coefficients)
        value = Float(0)
        for coefficient in reversed(coefficients):
            value = dr.fma(value, self.place, coefficient)
        error = dr.square(value - self.target)
        dr.backward(error)
        for state, coefficient in zip(self.state, coefficients):
            gradient = dr.grad(coefficient)
            state[1] = 0.9 * state[1] + 0.1 * gradient
            state[2] = 0.99 * state[2] + 0.01 * dr.square(gradient)
            mean, square = state[1] / (1 - 0.9**number), state[2] / (1 - 0.99**number)
            state[0] = dr.detach(coefficient) - 0.1 * mean / (dr.sqrt(square) + 1e-8)
        loss = dr.detach(error)
        dr.eval(loss, self.state)
        return np.asarray(loss)

    def check(self):
        """The same by NumPy, in double precision."""
        powers = np.stack([self.x.astype(np.float64) ** k for k in range(degree)])
        value, mean, square = (np.zeros((degree, points)) for _ in range(3))
        for number in range(1, steps + 1):
            gradient = 2 * ((value * powers).sum(0) - self.y) * powers
            mean = 0.9 * mean + 0.1 * gradient
            square = 0.99 * square + 0.01 * gradient**2
            value -= 0.1 * (mean / (1 - 0.9**number)) / (np.sqrt(square / (1 - 0.99**number)) + 1e-8)
        off = np.abs(np.stack([np.asarray(state[0]) for state in self.state]) - value)
        # Where a gradient is next to nothing its sign is chance, and Adam's steps are as long as any.
        assert np.median(off) < 1e-6 and np.mean(off > 1e-2) < 1e-3, off.max()


data = [Signal() for _ in range(signals)]
for number in range(1, steps + 1):
    loss = np.stack([signal.step(number) for signal in data])
    print(f"step {number}: loss {float(loss.mean())!r}", flush=True)
digest = hashlib.sha256()
for signal in data:
    signal.check()
    for values in sum(signal.state, []):
        digest.update(np.asarray(values).tobytes())
print("parameters", digest.hexdigest())
