"""Fixtures shared by all tests."""
import pathlib
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parent.parent
SHARED = ROOT.parent / "shared"

if str(ROOT) not in sys.path:
  sys.path.insert(0, str(ROOT))


def pytest_addoption(parser):
  """Adds --long."""
  parser.addoption("--long", action="store_true",
                   help="also run the tests that take many minutes")


def pytest_collection_modifyitems(config, items):
  """Skips the tests marked long unless they are asked for."""
  if config.getoption("--long"):
    return
  for item in items:
    if item.get_closest_marker("long"):
      item.add_marker(pytest.mark.skip(reason="takes minutes: pass --long"))


@pytest.fixture(scope="session")
def shared() -> pathlib.Path:
  """The folder with reference data; tests that need it skip without it."""
  if not (SHARED / "golden").is_dir():
    pytest.skip("the reference data (../shared) is not on this machine")
  return SHARED
