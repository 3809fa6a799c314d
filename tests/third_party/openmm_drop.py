"""A drop of charged particles in chains, a step of it, on OpenMM's CUDA and reference platforms.

Without a cutoff: OpenMM's neighbour list takes it that the threads of a warp run in step, also where nothing makes them
wait for each other. GPUs do so there, CUDA does not promise it, and the simulated GPU does not.
"""

import random

import numpy
import openmm

SIDE = 20
SPACING = 0.36


def drop():
    random.seed(1)
    system = openmm.System()
    pairs = openmm.NonbondedForce()
    bonds = openmm.HarmonicBondForce()
    positions = []
    for i in range(SIDE**3):
        system.addParticle(39.9)
        pairs.addParticle(0.2 if i % 2 else -0.2, 0.3, 1.0)
        cell = (i % SIDE, i // SIDE % SIDE, i // SIDE // SIDE)
        positions.append([(c + 0.1 * random.random()) * SPACING for c in cell])
        if i % 4:
            bonds.addBond(i - 1, i, SPACING, 1000.0)
            pairs.addException(i - 1, i, 0, 1, 0)
    system.addForce(pairs)
    system.addForce(bonds)
    return system, positions


def simulate(platform, properties):
    system, positions = drop()
    integrator = openmm.VerletIntegrator(0.001)
    context = openmm.Context(system, integrator, openmm.Platform.getPlatformByName(platform), properties)
    context.setPositions(positions)
    before = context.getState(getEnergy=True, getForces=True)
    integrator.step(1)
    after = context.getState(getEnergy=True, getPositions=True)
    return {
        "energy": [before.getPotentialEnergy()._value, after.getPotentialEnergy()._value],
        "forces": before.getForces(asNumpy=True)._value,
        "positions": after.getPositions(asNumpy=True)._value,
    }


reference = simulate("Reference", {})
gpu = simulate("CUDA", {"Precision": "mixed"})
different = False
for name, expected in reference.items():
    expected = numpy.asarray(expected)
    distance = numpy.abs(numpy.asarray(gpu[name]) - expected).max() / numpy.abs(expected).max()
    if not distance < 1e-5:
        different = True
        print(name, "differ from the reference by", distance)
if not different:
    print("as the reference")
