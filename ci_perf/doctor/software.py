"""Diagnoses of the Python of the kernels, torch and cuda-core."""

from collections.abc import Iterator

from ci_perf.doctor.facts import Diagnosis, Facts, broken, missing, ok, warn
from ci_perf.doctor.versions import install_torch, major, older


def interpreter(facts: Facts) -> Iterator[Diagnosis]:
    """Diagnose the Python of the kernels, and whether its torch can use the GPU."""
    python = facts.interpreter
    if python is None:
        yield broken("python", facts.interpreter_problem, facts.interpreter_hint)
        return
    yield ok("python", f"kernels run under Python {python.version} at {python.path}")
    install = install_torch(python, facts.driver_cuda)
    if facts.torch is None:
        yield missing("torch", f"{python.path} has no torch", install)
    elif facts.torch_cuda is None and facts.gpus:
        yield broken("torch", f"torch {facts.torch} was built without CUDA, so it cannot use the GPU", install)
    else:
        built = f", built with CUDA {facts.torch_cuda}" if facts.torch_cuda else ", for the CPU"
        yield ok("torch", f"torch {facts.torch}{built}")


def compatibility(facts: Facts) -> Iterator[Diagnosis]:
    """Diagnose whether torch and the driver work together, and whether CUDA C++ kernels can be compiled."""
    python, torch_cuda, driver_cuda = facts.interpreter, facts.torch_cuda, facts.driver_cuda
    if python is None:
        return
    if torch_cuda and driver_cuda:
        install = install_torch(python, driver_cuda)
        if major(torch_cuda) > major(driver_cuda):
            yield broken(
                "torch and driver",
                f"torch needs CUDA {torch_cuda}, but driver {facts.driver} supports CUDA {driver_cuda} at most",
                f"{install}; or install a newer driver",
            )
        elif older(driver_cuda, torch_cuda):
            yield warn(
                "torch and driver",
                f"torch was built with CUDA {torch_cuda}, driver {facts.driver} supports {driver_cuda}: this works "
                "within a major version, except for kernels that are shipped as PTX",
                f"{install}; or install a driver for CUDA {torch_cuda}",
            )
        else:
            yield ok("torch and driver", f"CUDA {torch_cuda} of torch works with CUDA {driver_cuda} of the driver")
    if facts.cuda_core:
        yield ok("cuda-core", f"cuda-core {facts.cuda_core}")
    else:
        yield missing(
            "cuda-core",
            f"{python.path} has no cuda-core, which only kernels in CUDA C++ need",
            f'{python.path} -m pip install "cuda-core[cu{major(driver_cuda or torch_cuda or "13")}]"',
        )
