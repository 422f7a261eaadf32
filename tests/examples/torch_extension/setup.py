"""Builds the extension beside this file: python setup.py build_ext --inplace."""

from setuptools import setup
from torch.utils.cpp_extension import BuildExtension, CppExtension

setup(
    name="row-ops",
    version="0.1.0",
    packages=[],
    ext_modules=[CppExtension("row_ops", ["csrc/row_norm.cpp"])],
    cmdclass={"build_ext": BuildExtension.with_options(no_python_abi_suffix=True)},
)
