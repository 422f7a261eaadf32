"""The sessions of a merged run: each is judged by its own machine, toolchain and control."""

from collections.abc import Iterator
from dataclasses import replace

from ci_perf.values.device import Device
from ci_perf.values.measurement import Measurement
from ci_perf.values.reasons import Reason
from ci_perf.values.run import Note, Run


def sessions_of(run: Run) -> Iterator[Run]:
    """Return each session as a separate run; a run that was not merged is one session."""
    if not run.sessions:
        yield run
        return
    others = tuple(note for note in run.notes if note.code != Reason.MEMORY_ERRORS)
    for index, session in enumerate(run.sessions):
        broken = (Note(Reason.MEMORY_ERRORS, session.memory_errors),) if session.memory_errors else ()
        yield replace(
            run,
            notes=(*others, *broken),
            devices=session.devices,
            toolchain=session.toolchain,
            finished=session.finished,
            against=session.against,
            trace=session.trace,
            measurements=tuple(m for m in run.measurements if m.session == index),
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
