"""The interpreter of the kernels, torch and cuda-core."""

from collections.abc import Iterator

from ci_perf.doctor.facts import Check, CheckState, Facts
from ci_perf.doctor.versions import install_torch, major, older


def interpreter(facts: Facts) -> Iterator[Check]:
    """Judge the Python of the kernels, and whether it has a torch that can use the GPU."""
    python = facts.interpreter
    if python is None:
        yield Check("python", CheckState.BROKEN, facts.interpreter_problem, facts.interpreter_hint)
        return
    yield Check("python", CheckState.OK, f"kernels run under Python {python.version} at {python.path}")
    if facts.torch is None:
        yield Check(
            "torch", CheckState.MISSING, f"{python.path} has no torch", install_torch(python, facts.driver_cuda)
        )
    elif facts.torch_cuda is None and facts.gpus:
        yield Check(
            "torch",
            CheckState.BROKEN,
            f"torch {facts.torch} was built without CUDA, so it does not see the GPU",
            install_torch(python, facts.driver_cuda),
        )
    else:
        built = f", built with CUDA {facts.torch_cuda}" if facts.torch_cuda else ", for the CPU"
        yield Check("torch", CheckState.OK, f"torch {facts.torch}{built}")


def what_fits(facts: Facts) -> Iterator[Check]:
    """Hold torch against the driver, and look for what compiled kernels need."""
    torch_cuda, driver_cuda = facts.torch_cuda, facts.driver_cuda
    if facts.interpreter and torch_cuda and driver_cuda:
        if major(torch_cuda) > major(driver_cuda):
            yield Check(
                "torch and driver",
                CheckState.BROKEN,
                f"torch needs CUDA {torch_cuda}, but driver {facts.driver} supports CUDA {driver_cuda} at most",
                f"{install_torch(facts.interpreter, driver_cuda)}; or install a newer driver",
            )
        elif older(driver_cuda, torch_cuda):
            yield Check(
                "torch and driver",
                CheckState.WARN,
                f"torch was built with CUDA {torch_cuda}, driver {facts.driver} supports {driver_cuda}: this works "
                "within a major version, except for kernels that are shipped as PTX",
                f"{install_torch(facts.interpreter, driver_cuda)}; or install a driver for CUDA {torch_cuda}",
            )
        else:
            yield Check(
                "torch and driver", CheckState.OK, f"CUDA {torch_cuda} of torch fits the driver's {driver_cuda}"
            )
    if facts.interpreter and facts.cuda_core is None:
        yield Check(
            "cuda-core",
            CheckState.MISSING,
            f"{facts.interpreter.path} has no cuda-core, which kernels in CUDA C++ need; others do not",
            f'{facts.interpreter.path} -m pip install "cuda-core[cu{major(driver_cuda or torch_cuda or "13")}]"',
        )
    elif facts.cuda_core:
        yield Check("cuda-core", CheckState.OK, f"cuda-core {facts.cuda_core}")
