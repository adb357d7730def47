"""``tpusim completion``: a script that completes commands and options in a shell."""

from __future__ import annotations

from argparse import Namespace

from tpusim.cli.options import command, option
from tpusim.cli.output import write
from tpusim.errors import ConfigError

_DESCRIPTION = """\
Print a script that lets a shell complete commands and options (needs shtab: pip install 'tpusim[completion]').
  bash:  tpusim completion bash > ~/.local/share/bash-completion/completions/tpusim
  zsh:   tpusim completion zsh > ~/.zfunc/_tpusim"""


@command(
    "completion",
    "print a script that completes commands and options in a shell",
    option("shell", choices=("bash", "zsh", "tcsh"), help="which shell"),
    description=_DESCRIPTION,
)
def completion(options: Namespace) -> None:
    """Print the script of a shell."""
    try:
        import shtab
    except ImportError as error:
        raise ConfigError("completion needs shtab: pip install 'tpusim[completion]'") from error
    write(shtab.complete(options.parser_of_all(), options.shell))
