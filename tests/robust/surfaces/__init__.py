"""Every way in, each in the table of the contract: importing this package fills it."""

from __future__ import annotations

from tests.robust.surfaces import answers as answers
from tests.robust.surfaces import files as files
from tests.robust.surfaces import fits as fits
from tests.robust.surfaces import hlo as hlo
from tests.robust.surfaces import machines as machines
from tests.robust.surfaces import options as options
from tests.robust.surfaces import sweeps as sweeps
from tests.robust.surfaces import words as words
