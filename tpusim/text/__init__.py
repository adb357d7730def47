"""HLO text to and from the ir; the only room that reads or writes HLO characters.

``parse_module(read_source(path))`` reads a program, ``print_module`` writes it as XLA would.
"""

from __future__ import annotations

from tpusim.text.literals import literal_values
from tpusim.text.mosaic.reader import read_kernel
from tpusim.text.parser import parse_module
from tpusim.text.printer import Style, instruction_text, print_module
from tpusim.text.reader import read_source

__all__ = ["Style", "instruction_text", "literal_values", "parse_module", "print_module", "read_kernel", "read_source"]
