#!/usr/bin/env bash
# Makes a Debian or Ubuntu host with an L4, an H100 or another NVIDIA GPU fit for ci-perf as a self-hosted runner: Python,
# git, the Nsight tools that fit the driver, counters for every user, a GPU that stays awake. What is there already stays
# as it is, so that it may be run again at any time. Then it says how to register a runner that lives for one job.
#
# usage: scripts/setup-runner.sh [--check]      --check prints what is missing and changes nothing; status 1 if anything is
# shellcheck disable=SC2329 # `ensure` calls most functions by name
set -euo pipefail

root=${SETUP_RUNNER_ROOT:-} # of the file system; another one for the tests
modprobe=$root/etc/modprobe.d/ci-perf-counters.conf
params=$root/proc/driver/nvidia/params
check=0 missing=0 reboot=0

case ${1:-} in
  "") ;;
  --check) check=1 ;;
  -h | --help) sed -n '2,6s/^# \{0,1\}//p' "$0"; exit ;;
  *) echo "error: $1 is no option: only --check is" >&2; exit 2 ;;
esac
if ((!check)) && [[ -z $root && $EUID != 0 ]]; then
  echo "error: setting up needs root: sudo $0, or $0 --check to look only" >&2
  exit 2
fi

have() { command -v "$1" >/dev/null; }
say() { printf '%-9s %s\n' "$1" "$2"; }

# ensure WHAT TEST MEND: says that it is there, or that it is missing, and mends it unless only asked.
ensure() {
  if "$2"; then
    say ok "$1"
  elif ((check)); then
    say missing "$1"
    missing=1
  else
    say setting "$1"
    "$3"
    if ! "$2" && ((!reboot)); then
      say failed "$1"
      missing=1
    fi
  fi
}

apt() { apt-get -qq update && DEBIAN_FRONTEND=noninteractive apt-get -qq install --yes --no-install-recommends "$@"; }

# --- the host --------------------------------------------------------------------------------------------------------

python_is_there() { have uv || python3 -c 'import ensurepip, sys, venv; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; }
install_python() { apt python3 python3-venv; }

git_is_there() { have git; }
install_git() { apt git; }

# --- NVIDIA ----------------------------------------------------------------------------------------------------------

driver_is_there() { have nvidia-smi && nvidia-smi --query-gpu=name --format=csv,noheader >/dev/null 2>&1; }
no_driver() {
  echo "error: install the driver first (apt-get install nvidia-open, from NVIDIA's repository), reboot, run this again" >&2
  exit 3
}

# The CUDA version that the driver goes up to, as `13.0`: no newer ncu works with it.
cuda_of_driver() { nvidia-smi | sed -n 's/.*CUDA [A-Z ]*Version: *\([0-9]*\.[0-9]*\).*/\1/p' | head -n 1; }

nvidia_repository() {
  apt-cache show nsight-systems-cli >/dev/null 2>&1 && return
  local id version
  # shellcheck source=/dev/null
  id=$(. "$root/etc/os-release" && echo "$ID")
  # shellcheck source=/dev/null
  version=$(. "$root/etc/os-release" && echo "${VERSION_ID//./}")
  local deb
  deb=$(mktemp --suffix=.deb)
  curl --fail --silent --show-error --location --output "$deb" \
    "https://developer.download.nvidia.com/compute/cuda/repos/$id$version/x86_64/cuda-keyring_1.1-1_all.deb"
  dpkg --install "$deb"
  rm -f "$deb"
}

nsys_is_there() { have nsys || compgen -G "$root/opt/nvidia/nsight-systems*/*/bin/nsys" >/dev/null; }
install_nsys() { nvidia_repository && apt nsight-systems-cli; }

ncu_is_there() { have ncu || compgen -G "$root/opt/nvidia/nsight-compute/*/ncu" >/dev/null || compgen -G "$root/usr/local/cuda*/bin/ncu" >/dev/null; }
install_ncu() {
  local cuda
  cuda=$(cuda_of_driver)
  nvidia_repository && apt "cuda-nsight-compute-${cuda/./-}"
}

# The module must allow it now, and again after the next boot.
counters_are_open() { grep -qs '^RmProfilingAdminOnly: 0' "$params" && grep -qs 'NVreg_RestrictProfilingToAdminUsers=0' "$modprobe"; }
open_counters() {
  mkdir -p "$(dirname "$modprobe")"
  echo 'options nvidia NVreg_RestrictProfilingToAdminUsers=0' >"$modprobe"
  if have update-initramfs; then update-initramfs -u; fi
  grep -qs '^RmProfilingAdminOnly: 0' "$params" || reboot=1
}

stays_awake() { [[ $(nvidia-smi --query-gpu=persistence_mode --format=csv,noheader | sort -u) == Enabled ]]; }
keep_awake() { if have systemctl && systemctl enable --now nvidia-persistenced 2>/dev/null; then :; else nvidia-smi --persistence-mode=1; fi; }

# The model, as a label: `NVIDIA H100 80GB HBM3` is h100, `NVIDIA L4` is l4.
label_of() { sed -E 's/^(NVIDIA|Tesla) //; s/^(NVIDIA|Tesla) //; s/[ -].*//' <<<"$1" | tr '[:upper:]' '[:lower:]'; }

ensure "Python 3.11 or newer with venv, or uv" python_is_there install_python
ensure "git" git_is_there install_git
ensure "NVIDIA driver" driver_is_there no_driver
if driver_is_there; then
  ensure "Nsight Systems (nsys)" nsys_is_there install_nsys
  ensure "Nsight Compute (ncu), no newer than CUDA $(cuda_of_driver) of the driver" ncu_is_there install_ncu
  ensure "performance counters for every user (NVreg_RestrictProfilingToAdminUsers=0)" counters_are_open open_counters
  ensure "persistence mode" stays_awake keep_awake
  mapfile -t models < <(nvidia-smi --query-gpu=name --format=csv,noheader | sort -u)
  ((${#models[@]} == 1)) || say note "GPUs of ${#models[@]} models: give each model its own runner, with CUDA_VISIBLE_DEVICES in its .env"
  if ((reboot)); then say reboot "the counters open with the next boot: sudo reboot"; fi
  for model in "${models[@]}"; do labels+="${labels:+ or }self-hosted,gpu,$(label_of "$model")"; done
  cat <<TEXT

Register a runner (2.327.1 or newer) as a user without sudo, with the labels ${labels}:

  ./config.sh --unattended --ephemeral --labels ${labels#self-hosted,} --url https://github.com/OWNER/REPOSITORY --token TOKEN
  ./run.sh

--ephemeral: it takes one job and is gone, and nothing of one job waits for the next. Start the next one from a fresh
image or container. Better still is a just-in-time runner, which never holds a registration token:

  gh api --method POST repos/OWNER/REPOSITORY/actions/runners/generate-jitconfig -f name=gpu-1 -F runner_group_id=1 \\
    $(sed -E 's/ or .*//; s/[^,]+/-f labels[]=&/g; s/,/ /g' <<<"$labels") --jq .encoded_jit_config
  ./run.sh --jitconfig CONFIG

Never give it to a public repository without both, and without approval of every outside contributor's run: a pull
request runs its author's code on this machine.
TEXT
fi
exit "$missing"
