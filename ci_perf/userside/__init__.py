"""What runs under the user's interpreter beside the worker: standard library and torch only, Python 3.9 and newer."""
