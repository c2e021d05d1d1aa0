"""Imports go down only, and FLAGS stay where they are parsed."""
import ast

import pytest

from conftest import ROOT

CONTRACT = {"modeling", "tokenization", "optimization", "optimization_multigpu"}
# What tasks may use of multigpu: nothing that knows about devices.
DEVICE_FREE = {"multigpu.errors", "multigpu.records", "multigpu.head",
               "multigpu.files", "multigpu.examples", "multigpu.sequences"}
ALONE = {"tensorflow", "numpy"}
STANDARD = {"math", "re", "typing"}


def python_files(folder):
  return sorted(path for path in folder.glob("*.py"))


def imports_of(path):
  """Dotted names of all modules that a file imports, wherever it does."""
  names = set()
  for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
    if isinstance(node, ast.Import):
      names.update(alias.name for alias in node.names)
    elif isinstance(node, ast.ImportFrom):
      assert node.level == 0, "%s: relative import" % path
      names.add(node.module)
      names.update("%s.%s" % (node.module, alias.name) for alias in node.names)
  return names


def own(names):
  """Those that are modules or packages of this project."""
  packages = {"tasks", "multigpu", "scripts", "tests", "benchmarks"}
  modules = {path.stem for path in python_files(ROOT)}
  return {name for name in names if name.split(".")[0] in packages | modules}


@pytest.mark.parametrize("path", python_files(ROOT / "tasks"),
                         ids=lambda path: path.name)
def test_tasks_know_no_devices(path):
  for name in own(imports_of(path)):
    if name.startswith("multigpu"):
      assert any(name == "multigpu" or name.startswith(allowed)
                 for allowed in DEVICE_FREE), name
    else:
      assert name.split(".")[0] in CONTRACT | {"tasks"}, name


@pytest.mark.parametrize("path", python_files(ROOT / "multigpu"),
                         ids=lambda path: path.name)
def test_multigpu_knows_no_task(path):
  for name in own(imports_of(path)):
    assert name.split(".")[0] in CONTRACT | {"multigpu"}, name


@pytest.mark.parametrize("name", sorted(CONTRACT))
def test_contract_modules_stand_at_the_bottom(name):
  allowed = {"optimization_multigpu"} if name == "optimization" else set()
  found = {used.split(".")[0]
           for used in own(imports_of(ROOT / (name + ".py")))}
  assert found <= allowed


def test_the_optimizer_can_be_copied_alone():
  found = {name.split(".")[0]
           for name in imports_of(ROOT / "optimization_multigpu.py")}
  assert found <= ALONE | STANDARD


@pytest.mark.parametrize("name", [
    "run_squad_multigpu", "run_classifier_multigpu", "run_pretraining_multigpu",
    "verify_gpus"])
def test_the_environment_is_set_before_tensorflow(name):
  text = (ROOT / (name + ".py")).read_text(encoding="utf-8")
  imports = [
      (node.names[0].name if isinstance(node, ast.Import) else node.module)
      .split(".")[0] for node in ast.parse(text).body
      if isinstance(node, (ast.Import, ast.ImportFrom))]
  ours = {used.split(".")[0] for used in own(imports_of(ROOT / (name + ".py")))}
  first = next(i for i, module in enumerate(imports)
               if module in ours | {"tensorflow"})
  assert imports[first] == "multigpu"


@pytest.mark.parametrize(
    "path", python_files(ROOT) + python_files(ROOT / "tasks")
    + python_files(ROOT / "multigpu"),
    ids=lambda path: str(path.relative_to(ROOT)))
def test_flags_are_read_in_run_scripts_only(path):
  text = path.read_text(encoding="utf-8")
  may_read = ('if __name__ == "__main__":' in text
              or path == ROOT / "multigpu" / "flags.py")
  names = {node.id for node in ast.walk(ast.parse(text))
           if isinstance(node, ast.Name)}
  assert may_read or "FLAGS" not in names


@pytest.mark.parametrize(
    "path", [path for path in python_files(ROOT)
             if "__main__" in path.read_text(encoding="utf-8")],
    ids=lambda path: path.name)
def test_main_is_wiring(path):
  functions = [node for node in ast.parse(path.read_text()).body
               if isinstance(node, ast.FunctionDef)]
  assert "main" in {node.name for node in functions}
  for node in functions:
    last = max(getattr(child, "lineno", 0) for child in ast.walk(node))
    assert last - node.lineno < 60, node.name


def test_estimator_is_made_in_one_place():
  users = [path.name for path in python_files(ROOT)
           + python_files(ROOT / "tasks") + python_files(ROOT / "multigpu")
           if "tf.estimator.Estimator(" in path.read_text(encoding="utf-8")]
  assert users == ["training.py"]
