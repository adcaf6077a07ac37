"""The entry point that installers call; everything it needs to know stands in setup.cfg."""

from setuptools import setup

setup()
