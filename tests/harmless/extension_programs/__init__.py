"""Programs with objects of other C extensions in garbage, for ``extensions.py``."""

from __future__ import annotations

# Each registers its programs.
from extension_programs import packages as packages
from extension_programs import standard_calls as standard_calls
from extension_programs import standard_data as standard_data
from extension_programs import torch_objects as torch_objects
from extension_programs import without_memory as without_memory
from extension_programs.holders import PROGRAMS as PROGRAMS
from extension_programs.holders import missing as missing
