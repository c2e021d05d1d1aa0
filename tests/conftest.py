"""Fixtures shared by all tests."""
import pathlib
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parent.parent
SHARED = ROOT.parent / "shared"
# TensorFlow 1.15 has no Python but 3.7.
RUNTIME = "tf1" if sys.version_info < (3, 8) else "tf2"

if str(ROOT) not in sys.path:
  sys.path.insert(0, str(ROOT))

import multigpu  # noqa: E402, F401  (before TensorFlow, as in the scripts)


def pytest_addoption(parser):
  """Adds --long."""
  parser.addoption("--long", action="store_true",
                   help="also run the tests that take many minutes")


def pytest_collection_modifyitems(config, items):
  """Skips the tests marked long or once unless they are asked for."""
  if config.getoption("--long"):
    return
  for item in items:
    if item.get_closest_marker("long"):
      item.add_marker(pytest.mark.skip(reason="takes minutes: pass --long"))
    once = item.get_closest_marker("once")
    if once and once.args != (RUNTIME,):
      item.add_marker(pytest.mark.skip(
          reason="runs on %s, here with --long only" % once.args))


@pytest.fixture(scope="session")
def shared() -> pathlib.Path:
  """The folder with reference data; tests that need it skip without it."""
  if not (SHARED / "golden").is_dir():
    pytest.skip("the reference data (../shared) is not on this machine")
  return SHARED
