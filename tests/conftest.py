"""Fixtures shared by all tests."""
import pathlib
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parent.parent
SHARED = ROOT.parent / "shared"

if str(ROOT) not in sys.path:
  sys.path.insert(0, str(ROOT))


@pytest.fixture(scope="session")
def shared() -> pathlib.Path:
  """The folder with reference data; tests that need it skip without it."""
  if not (SHARED / "golden").is_dir():
    pytest.skip("the reference data (../shared) is not on this machine")
  return SHARED
