"""Charged particles in chains on OpenMM's CUDA and reference platforms, by the argument.

drop: each pair counts; one step.
cutoff: those within a cutoff, by OpenMM's neighbour list, which is made anew as particles move.
periodic: the same in a periodic box, in double precision.
"""

import random
import sys

import numpy
import openmm

SIDE = 20
SPACING = 0.36
SIZE = 0.3125  # a float holds it: that is what such parameters are on the GPU in any precision
CUTOFF = 0.9
kind = sys.argv[1]
METHODS = {
    "drop": openmm.NonbondedForce.NoCutoff,
    "cutoff": openmm.NonbondedForce.CutoffNonPeriodic,
    "periodic": openmm.NonbondedForce.CutoffPeriodic,
}
STEPS = 1 if kind == "drop" else 20
PRECISION, BOUND = ("double", 1e-6) if kind == "periodic" else ("mixed", 2e-5)


def drop():
    random.seed(1)
    system = openmm.System()
    pairs = openmm.NonbondedForce()
    pairs.setNonbondedMethod(METHODS[kind])
    pairs.setCutoffDistance(CUTOFF)
    system.setDefaultPeriodicBoxVectors(*(SIDE * SPACING * axis for axis in numpy.eye(3)))
    bonds = openmm.HarmonicBondForce()
    positions = []
    for i in range(SIDE**3):
        system.addParticle(39.9)
        pairs.addParticle(0.2 if i % 2 else -0.2, SIZE, 1.0)
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
    integrator.step(STEPS)
    after = context.getState(getEnergy=True, getPositions=True)
    return {
        "energy": [before.getPotentialEnergy()._value, after.getPotentialEnergy()._value],
        "forces": before.getForces(asNumpy=True)._value,
        "positions": after.getPositions(asNumpy=True)._value,
    }


reference = simulate("Reference", {})
gpu = simulate("CUDA", {"Precision": PRECISION})
different = False
for name, expected in reference.items():
    expected = numpy.asarray(expected)
    distance = numpy.abs(numpy.asarray(gpu[name]) - expected).max() / numpy.abs(expected).max()
    if not distance < BOUND:
        different = True
        print(name, "differ from the reference by", distance)
if not different:
    print("as the reference")
