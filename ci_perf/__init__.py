"""CI for GPU kernels: check, time, profile and judge each kernel, and explain the verdict.

The map. Data walks through these rooms once, front to back, and nothing imports from a room above its own:

    kernel.toml --> core.spec --> core.plan --+
    settings -----> core.settings ------------+--> flow --> run.json --> core.verdict --> core.report --> render
    machine ------> edge.preflight -----------+     |
                                                    +--> edge.lab --> worker (user's interpreter), nsys, ncu

cli             the command line: each command parses, calls, prints, exits
  program       the commands together; where errors become exit statuses
  run           `run`: the main job
  checks        `run --fuzz` and `run --sanitize`
  publish       `publish`: a run's comment, summary, annotations and outputs
  report        `report` and `replay`: a recorded run as text
  plan          `plan`: cases shared out over jobs
  merge         `merge`: several runs as one
  baseline      `baseline accept`, `check`, `diff`
  listing       `list`
  inspect       `inspect`
  scrub         `scrub`
  audit         `audit`
  doctor        `doctor`
  options       flags made from the table of settings
  output        the report on a terminal, progress bars
edge            one module for each kind of outside world
  preflight     what is settled before the first measurement: interpreter, devices, profilers
  lab           the machine as the flow sees it: verify, time, profile
  external      programs: run anew for each replicate, timed through their kernels, by the clock, or by themselves
  program_run   one run of a program
  program_kernels  programs under nsys, timed through their kernels
  program_results  what benchmark programs wrote of themselves
  program_counters  programs under ncu
  program_traces  the traces of programs that are kept
  base          the base commit made ready: tree, build, kernels, worker
  built         its tree as the setup command left it, kept from run to run
  build_inputs  what a build depends on beside its tree
  turns         base and head in turns on one device
  worker_process  a worker from outside: asks, waits, turns every death into a Failure
  profile       one session of nsys or ncu for all cases
  sanitize      compute-sanitizer, a process for each case and tool
  torch_trace   the timeline from torch's profiler, where there is no nsys
  lock          one run at a time on each GPU
  inspection    any file of a profiler or a benchmark
  gpu           NVML: which GPUs, and how they are just now
  watch         what happens on a GPU while something is measured: other programs, sudden slowdowns
  machine       the facts that `doctor` judges; the CPU as a device
  tools         finds nsys, ncu and the Python with torch
  store         files: kernels, settings, runs, baselines
  audit         sessions in which the truth is known
  audit_file    files of audit sessions, appended to
  actions       the files of GitHub's runner: event, summary, outputs
  github        pull requests and comments, through PyGithub
  archive       the run.json of an artifact that nobody vouches for
  artifacts     the artifact folder of a run
  guard         keeps what holds a secret out of it
  unpack        what a file holds at every depth, in archives within archives too
  own_environment  blanks the secrets that this process shows to others
  git           commit and user
  proc          starts programs, with a time limit
checking        the order of a run that checks in place of measuring: random cases, compute-sanitizer
flow            the order of the main job, whatever the machine is
  main_job      verify, time, confirm, profile
  turns         pairs until the verdict is clear, and the control
  journal       the run as it grows
  lab           what a machine must be able to do
render          a report as text
  markdown      the pull request comment
  terminal      tables for people
  html          the comment as a page
  tabular       CSV
  folder        the small files of the artifact folder
  junit         JUnit XML
  json_text     JSON for programs
  audit         the audit as tables and JSON
  plot          the operating curve of an audit as a picture
  cells         the words of a row, shared by all of them
  commands      annotations for GitHub's runner
  escape        names from users' code made harmless
profilers       nsys and ncu as pure functions: command, reader, diagnosis
  nsys          Nsight Systems: command, complaints
  nsys_sqlite   reads its exported database
  nsys_kernels  goes over the kernels of a trace of any length
  nsys_calls    goes over its API calls, and finds the launch of a kernel
  nsys_ranges   says which ranges are open at a launch
  nsys_tally    sums and medians of kernels
  nsys_columns  columns of integers out of SQLite, many rows at a time
  nsys_warnings  what a trace does not hold
  nsys_pool     asks a large trace through several processes
  nsys_scan     such a process; started by path, stands alone
  nsys_schema   gives every version's tables one shape
  nsys_activity  reads what a program did in a range, call by call
  nsys_scrub    removes environments from an export
  chrome_trace  reads the trace of torch's profiler
  timeline      what a trace holds
  activity      what a program did with the GPU in a range, summed up
  ncu           Nsight Compute: command, complaints
  ncu_report_file  reads .ncu-rep
  ncu_csv       reads its CSV pages and logs
  counters      what a report holds
  sanitizer     compute-sanitizer: command, complaints, findings
  document      a file's content for `inspect`
  attribution   which kernels and counters belong to which case
  program_trace  the kernels of a program that count
  printed       numbers of any locale
  units         every unit to its base unit
  diagnosis     a profiler's complaint as a value
  filetype      what a file that cannot be read looks like
benchmarks      what other benchmarks wrote, as pure functions
  reader        tells the kinds of file apart; refuses the rest
  results       the cases that a file holds
  choice        the one number that a kernel.toml means
  nvbench       its JSON and CSV
  google        google-benchmark's JSON and CSV
  pytest_benchmark  its JSON
  triton        the CSV of perf_report
doctor          what a machine lacks and what mends it, as pure functions
  diagnosis     all checks of a machine
  facts         what was found, and what is said of it
  hardware      the driver and its GPUs
  software      the Python of the kernels
  tools         NVIDIA's tools, and the permission to read counters
  versions      which versions belong together
core            pure: values in, values out
  model         the values and the glossary
  spec          kernel.toml
  settings      every setting once
  fuzz          random cases, and smaller ones
  plan          which cases run where
  shards        the cases of a plan shared out over jobs
  sessions      the parts of a merged run, each with its own machine
  merge         shards into one run
  program       the command line of a program, filled for a case
  stats         summaries and intervals
  decision      the verdict on one number
  paired        the verdict on pairs that took turns
  gates         limits on counters and timelines, and differences
  finding       what is said of a case
  verdict       the verdict on each case
  checks        the verdict on random cases and on what a sanitizer found
  versus        the verdict on a case against its base commit, and on the session
  audit         sessions in which the truth is known, judged again
  audit_line    such sessions as lines of JSON
  audit_report  the error rate that they show
  anchors       the rules of other systems
  anchor_shares  how often these are wrong on the same data
  baseline      made from a run, checked, compared
  metrics       the counters by name
  parts         what a program's time is made of, beside what it was
  timeline      the metrics of a timeline by name
  kernel_names  names of GPU kernels, whatever tool wrote them
  roofline      how near a time is to the device's best
  occupancy     how many warps of a kernel fit on a multiprocessor
  report        findings and numbers in order
  event         the event that started a workflow
  publish       what a report sends to GitHub
  patch         the baselines of a run as a patch
  foreign       a run from code that nobody vouches for
  source        where a kernel is launched
  schema        JSON Schemas and errors that name the key
  serial        runs and baselines as canonical JSON
  secrets       what must not leave the machine
  spellings     how it looks in a file
  quantity      numbers as text
  base_unit     units as people write them
  errors        errors that users see, and exit statuses
schemas         JSON Schema 2020-12 of kernel.toml, runs, baselines and audits
userside        what runs under the user's interpreter beside the worker; standard library only
  case          a kernel.py with its inputs
  verify        its output held against its reference
  strides       the same inputs elsewhere in memory
  timers        what is measured, over how many launches
  stopwatch     a case timed alone, or in turns with another process
  cupti         when the GPU worked, from CUPTI's records
  cupti_timers  what is measured through them
  identity      what a launch makes the GPU do, as a hash
  machine_code  what of a cubin runs, as a hash
worker          runs kernels under the user's interpreter; standard library only, stands alone
cuda            compiles and launches the .cu files beside a kernel.py; under the user's interpreter too
"""

__version__ = "0.1.0"
