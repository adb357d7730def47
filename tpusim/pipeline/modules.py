"""Modules as users build them: here the builder meets the room that prints what it builds."""

from __future__ import annotations

from tpusim.build.builder import Builder
from tpusim.ir.module import Module
from tpusim.text import print_module

__all__ = ["Builder", "Module", "print_module"]
