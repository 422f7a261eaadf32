"""What is known: kernels, measurements, runs, baselines. Pure.

Glossary, one word for one thing:

kernel       a folder with a `kernel.toml`; the folder's name is its name
case         one set of parameters of a kernel
launch       one call of the kernel's `launch`; it may start several GPU kernels
program      what runs if a kernel has no `launch`: an application, or a benchmark that writes its own results
sample       the time of one launch in seconds, averaged over the launches timed together; of a program, what it
             measured itself, in the unit of its measurement
replicate    the samples of one fresh process; the process is the unit of replication
batch        the replicates measured before the next look at the verdict: 0 first, 1 to confirm
pair         a process of the base commit and one of the head that time a case in turns
measurement  all that one run measured of one case on one device
run          everything a verdict needs, in one file
baseline     what was agreed for one kernel on one GPU model, in `baselines/`
session      one use of one machine by one process of ci-perf; a merged run has one for each job
shard        a part of a plan that one job measures
finding      the verdict on one case, with its reason code and numbers
report       findings and statistics, ready to be rendered

Units are SI base units (seconds, bytes, hertz, watts); a percentage keeps `_pct` in its name, a trace's time `_ns`.

artifact          the files of the artifact folder
baseline          a baseline
codec             runs, baselines, plans and audits as JSON; a run as it grows
comment           the state of a pull request comment
device            the machine that was measured, its tools; where a run comes from
errors            errors that users see, their hints, and exit statuses
escape            names from users' code, escaped for Markdown and HTML
extensible        limits of the values of a file, and keys of newer versions
job               the cases that a run selects; the shards of a plan
kernel            kernels as kernel.toml describes them; the command line of a program
kernel_names      names of GPU kernels, whatever tool wrote them
kernel_toml       kernel.toml
measurement       what a run measured of one case
merged            what merges changed, in `baselines/`
metrics           the counters by name
occupancy         how many warps of a kernel fit on a multiprocessor
pull_request      which pull request a run belongs to
quantity          numbers as text, units as people write them
reasons           the verdicts; every reason code, with its meaning and the next step
run               a run, its sessions, and what random cases and compute-sanitizer found
schema            JSON Schemas, versions of the files, errors that name the key
series            the times of one case over commits and runs
setting_values    parsers of the values of settings
settings          every setting once
timeline_metrics  the metrics of a timeline by name
toml_text         TOML, and the remedies for its errors
trace             readings of counters, and a timeline
"""
