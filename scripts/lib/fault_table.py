"""What `scripts/faults` shows: the faults that are made, and the places where text leaves ci-perf.

Each line names the tests that make the fault, or that try every nasty text at the place. A name of a test without its
parameters stands for all of its parameters.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault that tests really make."""

    kind: str
    what: str
    outcome: str
    """What must happen."""
    tests: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Sink:
    """A place where text from users' code leaves ci-perf."""

    place: str
    writer: str
    """`module:function` below ci_perf that writes it."""
    encoder: str
    """`module:function` that makes text harmless there; of the package, the standard library or a dependency."""
    test: str


_GITHUB, _FOREIGN, _RENDER = (
    "tests/github/test_github.py::",
    "tests/github/test_foreign.py::",
    "tests/render/test_render.py::",
)
_ACTION, _RUN, _WORKER = "tests/project/test_action.py::", "tests/cli/test_run.py::", "tests/measure/test_worker.py::"
_SECRETS, _SINKS = "tests/guard/test_secrets.py::", "tests/github/test_sinks.py::"


def _fault(kind: str, what: str, outcome: str, *tests: str) -> Fault:
    return Fault(kind, what, outcome, tests)


FAULTS = (
    _fault(
        "network",
        "GitHub answers 502, 503, 429 or a rate limit, to each kind of request",
        "tried again: one comment",
        _GITHUB + "test_what_passes_is_tried_again",
    ),
    _fault(
        "network",
        "HTML in place of JSON, a body cut short, an odd redirect",
        "tried again: one comment",
        _GITHUB + "test_an_answer_that_cannot_be_read_is_asked_for_again",
    ),
    _fault(
        "network",
        "no answer is ever readable",
        "an error in one sentence",
        _GITHUB + "test_answers_that_are_never_readable_are_an_error_of_the_machine",
    ),
    _fault(
        "network",
        "the answer to a new comment is lost",
        "one comment",
        _GITHUB + "test_a_comment_that_was_made_although_the_answer_was_an_error_is_not_made_twice",
    ),
    _fault(
        "network",
        "two jobs comment at the same time",
        "one comment",
        _GITHUB + "test_two_jobs_that_create_at_once_end_with_one_comment",
    ),
    _fault(
        "network", "there is no GitHub", "an error in one sentence", _GITHUB + "test_a_github_that_is_not_there_is_said"
    ),
    _fault(
        "network",
        "GitHub fails while a run is published",
        "summary, annotations and outputs are written",
        "tests/github/test_publish.py::test_a_github_that_fails_costs_neither_summary_nor_annotations_nor_outputs",
    ),
    _fault(
        "network",
        "GitHub asks to wait for an hour",
        "ends at the deadline, with an error in one sentence",
        _GITHUB + "test_all_requests_together_have_a_deadline",
    ),
    _fault(
        "network",
        "the comment is deleted while it is updated",
        "it is made again",
        _GITHUB + "test_a_comment_that_is_deleted_meanwhile_is_made_again",
    ),
    _fault(
        "network",
        "the conversation is locked",
        "the error says so",
        _GITHUB + "test_a_locked_conversation_is_told_from_a_token_that_may_not_write",
    ),
    _fault(
        "kill",
        "ci-perf is killed (SIGKILL)",
        "the finished cases are read from the journal",
        _RUN + "test_a_run_that_was_killed_is_read_from_its_journal",
    ),
    _fault(
        "kill",
        "ci-perf is interrupted (SIGINT)",
        "the run can be read, no process is left",
        _RUN + "test_after_ctrl_c_the_run_can_be_read_and_no_process_is_left",
    ),
    _fault(
        "kill",
        "the job is cancelled (SIGTERM)",
        "the measurement ends, with its status",
        _ACTION + "test_a_cancelled_job_ends_the_measurement",
    ),
    _fault(
        "kill",
        "a kernel dies, exits or is killed",
        "one failed row, the next kernel works",
        _WORKER + "test_a_failing_kernel_is_a_failure_with_a_reason_and_the_next_one_works",
        _WORKER + "test_a_worker_that_dies_itself_is_replaced",
    ),
    _fault(
        "kill",
        "a kernel hangs",
        "it is killed with its child processes",
        _WORKER + "test_a_kernel_that_hangs_is_killed_with_its_child_processes",
    ),
    _fault(
        "file",
        "a run file that is no run, or cut off",
        "refused in one line",
        _RUN + "test_a_file_that_is_not_a_run_is_refused_in_one_line",
        "tests/values/test_codec.py::test_a_file_that_is_no_run_is_refused_with_file_key_and_remedy",
    ),
    _fault(
        "file",
        "a damaged archive",
        "refused in one line",
        _RUN + "test_an_archive_that_is_damaged_or_contains_no_run_is_refused_in_one_line",
    ),
    _fault(
        "file",
        "a damaged baseline",
        "nothing is measured",
        _RUN + "test_a_damaged_baseline_stops_the_run_before_anything_is_measured",
    ),
    _fault(
        "file",
        "a trace of torch, cut off anywhere",
        "refused",
        "tests/traces/test_guards.py::test_a_trace_that_was_cut_off_anywhere_is_refused",
    ),
    _fault(
        "file",
        "a report of ncu with a zeroed or lost part",
        "refused, or read the same",
        "tests/traces/test_guards.py::test_a_report_of_ncu_with_an_emptied_or_lost_part_is_refused_or_read_the_same",
    ),
    _fault(
        "file",
        "a lost heading of an ncu page",
        "no value gets another name",
        "tests/traces/test_guards.py::test_a_lost_heading_never_gives_a_value_the_name_of_its_neighbour",
    ),
    _fault(
        "file",
        "a zip bomb, a zip that leaves its folder, a zip with a link",
        "refused",
        _FOREIGN + "test_a_bomb_of_one_gigabyte_is_not_unpacked",
        _FOREIGN + "test_a_small_bomb_is_told_by_its_ratio",
        _FOREIGN + "test_an_archive_that_leaves_its_folder_is_refused",
        _FOREIGN + "test_an_archive_with_a_link_or_a_device_is_refused",
    ),
    _fault(
        "planted",
        "a kernel writes a .pth into the environment of ci-perf",
        "found, nothing is published",
        _ACTION + "test_a_pth_that_a_kernel_plants_in_the_environment_of_ci_perf_is_found_before_the_token",
    ),
    _fault(
        "planted",
        "a kernel sets BASH_ENV for later steps of its job, of two jobs",
        "takes no token, and the other job publishes",
        _ACTION + "test_with_two_jobs_code_that_finds_the_control_files_of_its_job_takes_no_token",
    ),
    _fault(
        "planted",
        "a kernel leaves a daemon",
        "ended with the measuring step",
        _ACTION + "test_a_daemon_that_a_kernel_starts_ends_with_the_measuring_step",
        "tests/measure/test_process_tracking.py::test_processes_that_outlive_a_program_are_ended",
    ),
    _fault(
        "planted",
        "a kernel looks for GITHUB_ENV, secrets and kept bases",
        "finds none",
        _ACTION + "test_the_code_of_a_pull_request_finds_no_control_of_its_job_no_secret_and_no_base_of_another",
    ),
    _fault(
        "planted",
        "perf.yml does not know its own repository",
        "stops before any checkout",
        _ACTION + "test_perf_yml_stops_before_it_checks_anything_out_where_its_own_repository_is_not_known",
    ),
    _fault(
        "planted",
        "a kernel writes to every open file",
        "one failed row, the next kernel works",
        _WORKER + "test_a_kernel_that_writes_to_every_open_file_fails_and_the_next_one_works",
    ),
    _fault(
        "planted",
        "a kernel prints what looks like an answer of the worker",
        "not taken for one",
        _WORKER + "test_output_of_a_kernel_is_not_taken_for_an_answer_of_the_worker",
    ),
    _fault(
        "planted",
        "a secret in every file of a run",
        "withheld or redacted",
        _SECRETS + "test_a_file_with_a_secret_leaves_the_folder_and_the_note_names_file_and_variable",
        _SECRETS + "test_a_secret_is_found_however_deep_it_is_packed",
    ),
    _fault(
        "hostile",
        "numbers of a fork that break the arithmetic",
        "refused",
        _FOREIGN + "test_numbers_that_break_the_schema_or_the_arithmetic_are_refused",
    ),
    _fault(
        "hostile",
        "a fork's run for another commit or repository",
        "refused",
        _FOREIGN + "test_a_run_of_another_repository_or_commit_is_refused",
    ),
    _fault(
        "hostile",
        "markup in every text of a fork",
        "the comment has the same structure",
        _FOREIGN + "test_no_text_of_a_fork_is_markup",
    ),
    _fault(
        "hostile",
        "a text or a nesting without end",
        "refused",
        _FOREIGN + "test_a_text_without_end_is_refused",
        _FOREIGN + "test_nesting_without_end_is_refused",
    ),
)

SINKS = (
    Sink(
        "terminal",
        "render.terminal:render_terminal",
        "ci_perf.values.escape:clean",
        _RENDER + "test_no_message_controls_the_terminal",
    ),
    Sink(
        "terminal, `inspect`",
        "cli.inspect:inspect",
        "ci_perf.values.escape:clean",
        _SINKS + "test_clean_text_is_one_line_without_control",
    ),
    Sink(
        "Markdown: comment, summary",
        "render.markdown:render_comment",
        "ci_perf.values.escape:prose",
        _RENDER + "test_no_name_or_message_changes_the_structure_of_a_comment",
    ),
    Sink(
        "Markdown: names",
        "render.sections:report_sections",
        "ci_perf.values.escape:code",
        _RENDER + "test_code_is_one_cell_of_one_line_without_markup",
    ),
    Sink(
        "Markdown: tracebacks",
        "render.sections:report_sections",
        "ci_perf.values.escape:block",
        _SINKS + "test_no_line_ends_a_block",
    ),
    Sink(
        "Markdown: index.md",
        "render.folder:render_index",
        "ci_perf.values.escape:prose",
        _RENDER + "test_prose_is_one_cell_of_one_line_without_markup",
    ),
    Sink(
        "HTML",
        "render.html:render_html",
        "ci_perf.pages.parts:text",
        "tests/render/test_page.py::test_no_quoted_text_is_markup",
    ),
    Sink(
        "HTML: `ci-perf site`",
        "history.page:render_site",
        "ci_perf.pages.parts:text",
        "tests/history/test_history.py::test_no_name_of_a_series_is_markup",
    ),
    Sink("CSV", "render.tabular:render_csv", "csv:DictWriter", _RENDER + "test_csv_reads_back_as_it_was_written"),
    Sink("JSON", "render.json_text:render_json", "json:dumps", _RENDER + "test_json_can_contain_any_name"),
    Sink(
        "JUnit (XML)",
        "render.junit:render_junit",
        "xml.etree.ElementTree:tostring",
        _RENDER + "test_junit_is_xml_with_a_case_for_each_row",
    ),
    Sink(
        "logs: env.txt, smoke.txt, timeline.txt",
        "render.folder:render_environment",
        "ci_perf.values.escape:clean",
        _SINKS + "test_clean_text_is_one_line_without_control",
    ),
    Sink(
        "annotations (workflow commands)",
        "github.workflow_commands:render_annotation",
        "ci_perf.github.workflow_commands:render_annotation",
        _SINKS + "test_an_annotation_is_one_command_on_one_line",
    ),
    Sink(
        "outputs of a step",
        "github.actions:append_outputs",
        "ci_perf.github.actions:append_outputs",
        _SINKS + "test_no_value_sets_another_output",
    ),
    Sink(
        "shell: reproduce",
        "render.cells:reproduce",
        "shlex:join",
        _RENDER + "test_the_command_to_reproduce_names_the_cases_and_runs_nothing_else",
    ),
    Sink(
        "shell: apply the patch",
        "github.patch:apply_command",
        "shlex:join",
        _SINKS + "test_the_command_to_apply_fetches_and_runs_nothing_else",
    ),
)
