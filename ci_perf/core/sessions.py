"""The sessions of a merged run: each is judged by its own machine, toolchain and base against itself."""

from collections.abc import Iterator
from dataclasses import replace

from ci_perf.core.model import Device, Measurement, Run


def sessions_of(run: Run) -> Iterator[Run]:
    """Return each session as a run of its own; a run that was not merged is its only session.

    The level of the intervals is shared by all cases of the merged run, as it is in a run that measured them all:
    a session with a part of the cases gets that part of 1 - confidence.
    """
    if not run.sessions:
        yield run
        return
    for index, session in enumerate(run.sessions):
        mine = tuple(m for m in run.measurements if m.session == index)
        level = (1 - run.policy.confidence) * len(mine) / max(1, len(run.measurements))
        yield replace(
            run,
            policy=replace(run.policy, confidence=1 - level) if mine else run.policy,
            devices=session.devices,
            toolchain=session.toolchain,
            finished=session.finished,
            against=session.against,
            trace=session.trace,
            measurements=mine,
            sessions=(),
        )


def on_device(run: Run, device: Device) -> tuple[Run, ...]:
    """Return the sessions on devices of this model, each with what was measured on that device alone."""
    found = []
    for session in sessions_of(run):
        kinds = {d.kind for d in session.devices if d.slug == device.slug}
        mine: tuple[Measurement, ...] = tuple(m for m in session.measurements if m.device in kinds)
        if mine:
            found.append(replace(session, measurements=mine))
    return tuple(found)
