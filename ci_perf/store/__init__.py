"""Files on disk: kernels, settings, runs and baselines. Every error names the file; every write is atomic.

baselines   the files of `baselines/`
kernels     kernel.toml files and settings files
merged      the ledger of merges in `baselines/`
run_folder  the folder of a run: held by one ci-perf, cleared of an earlier run
runs        run.json, its journal while the run grows, plans
text_files  text files: read with an error that names the file, written atomically
"""

from ci_perf.store.baselines import read_baseline, read_baselines, write_baseline
from ci_perf.store.kernels import read_kernel, read_kernels, read_settings_file
from ci_perf.store.merged import append_merged, check_merged, read_merged
from ci_perf.store.run_folder import LARGEST_LOG, cap_logs, claim_run_folder, clear_run_folder, held_run_folder
from ci_perf.store.runs import (
    JOURNAL,
    LARGEST_RUN,
    append_step,
    begin_journal,
    close_journal,
    read_plan,
    read_run,
    write_run,
)
from ci_perf.store.text_files import append_line, relative_path, write_text

__all__ = [
    "JOURNAL",
    "LARGEST_LOG",
    "LARGEST_RUN",
    "append_line",
    "append_merged",
    "append_step",
    "begin_journal",
    "cap_logs",
    "check_merged",
    "claim_run_folder",
    "clear_run_folder",
    "close_journal",
    "held_run_folder",
    "read_baseline",
    "read_baselines",
    "read_kernel",
    "read_kernels",
    "read_merged",
    "read_plan",
    "read_run",
    "read_settings_file",
    "relative_path",
    "write_baseline",
    "write_run",
    "write_text",
]
