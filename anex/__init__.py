"""The core of anex: rules, state, money and files. It knows no web framework, task queue or GPU library."""

__version__ = "0.1.0"
