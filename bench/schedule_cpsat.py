#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A peer for `weft schedule`: the same problem for OR-Tools' CP-SAT.

    python3 -m venv venv && venv/bin/pip install ortools
    bench/schedule problems DIR          # the shapes of bench/schedule.c
    venv/bin/python bench/schedule_cpsat.py DIR/25.json --seconds 600

Prints every shorter makespan it finds, its lower bound, and "optimal" where it
has proven that. Written from the rules in doc/schedules.md alone, so that it
checks the search's bounds as well: a makespan below one of them is a defect.
"""
import argparse
import json
from fractions import Fraction

from ortools.sat.python import cp_model


def table(value, micro_batches, stages):
    """A number, a list per stage, or a list per micro-batch and stage."""
    if not isinstance(value, list):
        value = [value] * stages
    if not isinstance(value[0], list):
        value = [value] * micro_batches
    return [[Fraction(str(x)) for x in row] for row in value]


def scale_of(values):
    """The least whole number that makes all of them whole."""
    scale = 1
    for x in values:
        scale *= (scale * x).denominator
    return scale


class Model:
    def __init__(self, text):
        self.stages = text["stages"]
        self.pipelines = text.get("pipelines", 1)
        self.chunks = text.get("chunks", 1)
        self.micro_batches = text["micro_batches"]
        self.up = text.get("direction", "down") == "up"
        self.passes = {k: table(text[k], self.micro_batches, self.stages)
                       for k in ("forward", "backward", "weight") if k in text}
        self.activation = table(text.get("activation", 0), self.micro_batches,
                                self.stages)
        self.end = (Fraction(str(text.get("sync", 0)))
                    + Fraction(str(text.get("optimizer", 0))))
        times = self.passes
        self.equal = all(t[i] == t[0] for t in times.values()
                         for i in range(self.micro_batches))

    def device(self, pipeline, stage):
        width = self.stages // self.chunks
        place = stage % width
        return pipeline * width + (width - 1 - place if self.up else place)


def build(problem, below=None):
    n = problem["stages"]
    models = [Model(m) for m in problem["models"]]
    latency = Fraction(str(problem.get("latency", 0)))
    capacity = problem.get("memory_capacity")
    if problem.get("mini_batches", 1) != 1:
        raise SystemExit("one mini-batch only")
    times = [latency] + [x for m in models for t in m.passes.values()
                         for row in t for x in row] + [m.end for m in models]
    scale = scale_of(times)
    whole = lambda x: int(x * scale)
    room = None
    if capacity is not None:
        held = [x for m in models for row in m.activation for x in row]
        room_scale = scale_of(held + [Fraction(str(capacity))])
        room = int(Fraction(str(capacity)) * room_scale)
    model = cp_model.CpModel()
    most = whole(Fraction(str(below))) if below else 2 * whole(sum(times))
    busy = [[] for _ in range(n)]
    held_by = [[] for _ in range(n)]
    makespan = model.NewIntVar(0, most, "makespan")
    for m in models:
        last = "weight" if "weight" in m.passes else "backward"
        for p in range(m.pipelines):
            start = {}
            for name, t in m.passes.items():
                for i in range(m.micro_batches):
                    for s in range(m.stages):
                        x = model.NewIntVar(0, most, "")
                        start[name, i, s] = x
                        busy[m.device(p, s)].append(
                            model.NewFixedSizeIntervalVar(
                                x, whole(t[i][s]), ""))
                        model.Add(x + whole(t[i][s] + m.end) <= makespan)

            def before(a, b, lag=0):
                name, i, s = a
                model.Add(start[a] + whole(m.passes[name][i][s]) + lag
                          <= start[b])

            def hop(s, to):
                return (whole(latency)
                        if m.device(p, s) != m.device(p, to) else 0)

            for i in range(m.micro_batches):
                end = m.stages - 1
                before(("forward", i, end), ("backward", i, end))
                for s in range(1, m.stages):
                    before(("forward", i, s - 1), ("forward", i, s),
                           hop(s - 1, s))
                    before(("backward", i, s), ("backward", i, s - 1),
                           hop(s, s - 1))
                for s in range(m.stages):
                    if last == "weight":
                        before(("backward", i, s), ("weight", i, s))
                    # Weight gradients go in order; equal micro-batches may.
                    for name in m.passes:
                        if i > 0 and (name == last or m.equal):
                            before((name, i - 1, s), (name, i, s))
                    if room is not None:
                        until = model.NewIntVar(0, most, "")
                        model.Add(until == start[last, i, s]
                                  + whole(m.passes[last][i][s]))
                        length = model.NewIntVar(0, most, "")
                        held_by[m.device(p, s)].append((
                            model.NewIntervalVar(start["forward", i, s],
                                                 length, until, ""),
                            int(m.activation[i][s] * room_scale)))
    for d in range(n):
        model.AddNoOverlap(busy[d])
        if room is not None:
            model.AddCumulative([x for x, _ in held_by[d]],
                                [a for _, a in held_by[d]], room)
    model.Minimize(makespan)
    return model, scale


class Progress(cp_model.CpSolverSolutionCallback):
    def __init__(self, scale):
        super().__init__()
        self.scale = scale

    def on_solution_callback(self):
        print(f"{self.WallTime():8.1f} s  makespan "
              f"{self.ObjectiveValue() / self.scale:g}  at least "
              f"{self.BestObjectiveBound() / self.scale:g}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("problem")
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--below", type=float,
                        help="only look for makespans of at most this")
    args = parser.parse_args()
    with open(args.problem, encoding="utf-8") as f:
        problem = json.load(f)
    model, scale = build(problem, args.below)
    solver = cp_model.CpSolver()
    solver.parameters.max_time_in_seconds = args.seconds
    solver.parameters.num_workers = args.workers
    status = solver.Solve(model, Progress(scale))
    name = solver.StatusName(status).lower()
    if status in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        print(f"makespan {solver.ObjectiveValue() / scale:g}, at least "
              f"{solver.BestObjectiveBound() / scale:g}: {name}")
    else:
        print(name)


if __name__ == "__main__":
    main()
