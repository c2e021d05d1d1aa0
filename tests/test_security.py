"""Nothing in the programs runs code from data or fetches anything."""
import ast

import pytest

from conftest import ROOT

# Modules that unpickle, run other languages or open connections.
BANNED_MODULES = {
    "pickle", "cPickle", "dill", "cloudpickle", "joblib", "shelve", "marshal",
    "yaml", "torch", "urllib", "requests", "http", "socket", "ftplib", "imp",
    "code", "pty", "xml"}
# Hosts of one run talk to each other, in JSON.
ALLOWED = {"multigpu/joining.py": {"socket"}}
BANNED_CALLS = {"eval", "exec", "compile", "__import__", "input"}
BANNED_ATTRIBUTES = {
    "os.system", "os.popen", "tf.py_func", "tf.py_function", "np.fromregex",
    "tf.saved_model.load", "tf.train.import_meta_graph", "tf.load_op_library"}
PROGRAMS = sorted(
    path for folder in ("", "multigpu", "tasks", "scripts")
    for path in (ROOT / folder).glob("*.py"))


def dotted(node):
  """"os.system" for such an expression, "" for others."""
  if isinstance(node, ast.Name):
    return node.id
  if isinstance(node, ast.Attribute):
    left = dotted(node.value)
    return left and left + "." + node.attr
  return ""


def find_risks(text):
  """What a program must not do: [(line, what)]."""
  risks = []
  for node in ast.walk(ast.parse(text)):
    names = []
    if isinstance(node, ast.Import):
      names = [alias.name for alias in node.names]
    elif isinstance(node, ast.ImportFrom):
      names = [node.module or ""]
    risks += [(node.lineno, name) for name in names
              if name.split(".")[0] in BANNED_MODULES]
    if not isinstance(node, ast.Call):
      continue
    name = dotted(node.func)
    if name in BANNED_CALLS | BANNED_ATTRIBUTES:
      risks.append((node.lineno, name))
    for keyword in node.keywords:
      is_false = (isinstance(keyword.value, (ast.Constant, ast.NameConstant))
                  and not keyword.value.value)
      if keyword.arg in ("shell", "allow_pickle") and not is_false:
        risks.append((node.lineno, "%s(%s=...)" % (name, keyword.arg)))
  return risks


@pytest.mark.parametrize("path", PROGRAMS,
                         ids=lambda path: str(path.relative_to(ROOT)))
def test_no_code_from_data_and_no_downloads(path):
  allowed = ALLOWED.get(str(path.relative_to(ROOT)), set())
  assert not [risk for risk in find_risks(path.read_text(encoding="utf-8"))
              if risk[1] not in allowed]


@pytest.mark.parametrize("text", [
    "import pickle", "from urllib.request import urlopen", "eval(x)",
    "import os\nos.system(x)", "np.load(x, allow_pickle=True)",
    "subprocess.run(x, shell=True)", "subprocess.run(x, shell=flag)",
    "def f():\n  import torch.serialization"])
def test_risks_are_found(text):
  assert find_risks(text)


@pytest.mark.parametrize("text", [
    "re.compile(x)", "model.eval()", "np.load(x, allow_pickle=False)",
    "subprocess.run([x])"])
def test_harmless_code_passes(text):
  assert not find_risks(text)
