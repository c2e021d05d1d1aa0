"""Finds the lines of run scripts that several GPUs need changed.

  python scripts/patch_bert.py PATH/TO/run_squad.py ...

Prints, for each script made for Google's TPUEstimator, the six steps of
docs/patching.md with that file's line numbers; steps that are done are said to
be done. Reads the scripts without running or changing them. `patch_bert.sh`
calls it with any Python from 3.6 on that it finds; no TensorFlow is needed.
"""
import argparse
import ast
import sys
from typing import Dict, Iterator, List, NamedTuple, Optional, Set, Tuple

TO_DO, DONE, WRONG, NONE = "to do", "done", "wrong", "nothing to do"

STEPS = ("step 1, flag", "step 2, scaffold", "step 3, train spec",
         "step 4, predict and eval spec", "step 5, RunConfig",
         "step 6, Estimator", "number of steps")

# What to write, as docs/patching.md has it.
FLAG = ('flags.DEFINE_integer("num_gpus", 1, "Number of GPUs to train on.")',)
SCAFFOLD = ("tf.train.init_from_checkpoint(init_checkpoint, assignment_map)",
            "scaffold = tf.train.Scaffold()")
SPEC = {
    "train": ("output_spec = tf.estimator.EstimatorSpec(",
              "    mode=mode, loss=total_loss, train_op=train_op, "
              "scaffold=scaffold)"),
    "predict": ("output_spec = tf.estimator.EstimatorSpec(",
                "    mode=mode, predictions=predictions, scaffold=scaffold)"),
    "eval": ("output_spec = tf.estimator.EstimatorSpec(",
             "    mode=mode, loss=total_loss, scaffold=scaffold,",
             "    eval_metric_ops=metric_fn(*eval_metrics[1]))"),
}
RUN_CONFIG = (
    "distribution = tf.distribute.MirroredStrategy(",
    '    devices=["/gpu:%d" % i for i in range(FLAGS.num_gpus)])',
    "run_config = tf.estimator.RunConfig(",
    "    model_dir=FLAGS.output_dir,",
    "    save_checkpoints_steps=FLAGS.save_checkpoints_steps,",
    "    train_distribute=distribution)")
BUILDER = ("use_tpu=False,", "use_one_hot_embeddings=False)")
ESTIMATOR = ("estimator = tf.estimator.Estimator(",
             "    model_fn=model_fn,",
             "    config=run_config,",
             '    params={"batch_size": FLAGS.train_batch_size})')
NUM_STEPS = ("(FLAGS.train_batch_size * FLAGS.num_gpus)",)

NOTES = """
Then start the script with --num_gpus=N.
- --train_batch_size is the batch of one GPU; a step takes N times as many rows.
- Evaluation and prediction run on one GPU, with the batch size in params.
- TensorFlow 1.15 runs such a script as it is. TensorFlow 2 has no tf.contrib:
  there use this project's run_*_multigpu.py.
- In TensorFlow 1.15 the strategy may also be written
  tf.contrib.distribute.MirroredStrategy(num_gpus=FLAGS.num_gpus).
docs/patching.md (Chinese: docs/patching.zh-CN.md) explains each step."""


class Edit(NamedTuple):
  """One line of the report.

  Attributes:
    step: entry of STEPS.
    state: TO_DO, DONE, WRONG or NONE.
    line: where in the script; None = not in it.
    text: what to do there, or why nothing.
    code: what to write, line by line.
  """
  step: str
  state: str
  line: Optional[int]
  text: str = ""
  code: Tuple[str, ...] = ()


class Source:
  """A parsed script.

  Attributes:
    calls: (dotted name of the function, node) of all calls, by line.
  """

  def __init__(self, text: bytes):
    """Parses a file's bytes; SyntaxError or ValueError: not Python 3."""
    self.tree = ast.parse(text)
    self._parents: Dict[ast.AST, ast.AST] = {}
    for node in ast.walk(self.tree):
      for child in ast.iter_child_nodes(node):
        self._parents[child] = node
    calls = [node for node in ast.walk(self.tree) if isinstance(node, ast.Call)]
    self.calls = [(dotted_name(call.func), call)
                  for call in sorted(calls, key=lambda node: node.lineno)]

  def calls_of(self, name: str) -> List[Tuple[str, ast.Call]]:
    """The calls of `name`, whatever module it is taken from."""
    return [(full, call) for full, call in self.calls
            if full.split(".")[-1] == name]

  def flags(self) -> List[Tuple[object, ast.Call]]:
    """(name of the flag, node) of all flags that the script defines."""
    return [(literal(call.args[0]), call) for full, call in self.calls
            if full.split(".")[-1].startswith("DEFINE_") and call.args]

  def ancestors(self, node: ast.AST) -> Iterator[Tuple[ast.AST, ast.AST]]:
    """(parent, child) pairs from the node up to the module."""
    while node in self._parents:
      yield self._parents[node], node
      node = self._parents[node]


def dotted_name(node: ast.AST) -> str:
  """For example "tf.estimator.Estimator"; "" for what is no such name."""
  if isinstance(node, ast.Name):
    return node.id
  if isinstance(node, ast.Attribute):
    return dotted_name(node.value) + "." + node.attr
  return ""


def literal(node: ast.AST) -> object:
  """The value of a constant expression, None for any other."""
  try:
    return ast.literal_eval(node)
  except (ValueError, TypeError):
    return None


def keywords(call: ast.Call) -> Dict[Optional[str], ast.AST]:
  """The keyword arguments of a call."""
  return {keyword.arg: keyword.value for keyword in call.keywords}


def names_in(tree: ast.AST) -> Set[str]:
  """Names and attributes that occur in an expression."""
  return {getattr(node, "id", getattr(node, "attr", ""))
          for node in ast.walk(tree)}


def flag_edits(source: Source) -> List[Edit]:
  """Step 1: the flag num_gpus."""
  step = STEPS[0]
  lines = {name: call.lineno for name, call in source.flags()}
  if "num_gpus" in lines:
    return [Edit(step, DONE, lines["num_gpus"])]
  if "num_tpu_cores" in lines:
    return [Edit(step, TO_DO, lines["num_tpu_cores"],
                 "below the flag num_tpu_cores add", FLAG)]
  imported = [alias.name for node in ast.walk(source.tree)
              if isinstance(node, ast.Import) for alias in node.names
              if alias.name.startswith("run_")]
  if imported:
    return [Edit(step, NONE, None,
                 "the flags are those of {}.py".format(imported[0]))]
  return [Edit(step, TO_DO, max(lines.values()) if lines else None,
               "among the flags add", FLAG)]


def scaffold_edits(source: Source) -> List[Edit]:
  """Step 2: a Scaffold object, and a checkpoint that is really loaded."""
  step = STEPS[1]
  loads = [call for _, call in source.calls_of("init_from_checkpoint")]
  if not loads:
    return [Edit(step, NONE, None, "it starts from no checkpoint")]
  for load in loads:
    branch = _branch_without_checkpoint(source, load)
    if branch:
      return [Edit(
          step, WRONG, load.lineno,
          "this is the else of the if in line {}, where there is no checkpoint:"
          " with one, nothing is loaded. Instead".format(branch.lineno),
          SCAFFOLD)]
  objects = [call for _, call in source.calls_of("Scaffold")
             if not any(isinstance(parent, ast.Return)
                        for parent, _ in source.ancestors(call))]
  if objects:
    return [Edit(step, DONE, objects[0].lineno)]
  if "scaffold_fn" not in names_in(source.tree):
    return [Edit(step, DONE, loads[0].lineno)]
  for parent, _ in source.ancestors(loads[0]):
    if isinstance(parent, ast.If) and "use_tpu" in names_in(parent.test):
      return [Edit(step, TO_DO, parent.lineno,
                   "instead of both branches of this if", SCAFFOLD)]
  return [Edit(step, TO_DO, loads[0].lineno, "instead", SCAFFOLD)]


def _branch_without_checkpoint(source: Source,
                               load: ast.Call) -> Optional[ast.If]:
  """The `if init_checkpoint` whose else holds this call."""
  for parent, child in source.ancestors(load):
    if (isinstance(parent, ast.If) and child in parent.orelse and
        not isinstance(parent.test, ast.UnaryOp) and
        "init_checkpoint" in names_in(parent.test)):
      return parent
  return None


def spec_edits(source: Source) -> List[Edit]:
  """Steps 3 and 4: EstimatorSpec for each mode."""
  edits = []
  found: Dict[str, List[Edit]] = {}
  for name in ("EstimatorSpec", "TPUEstimatorSpec"):
    for _, call in source.calls_of(name):
      mode = mode_of(source, call)
      step = STEPS[2] if mode == "train" else STEPS[3]
      found.setdefault(mode, []).append(_spec_edit(step, name, mode, call))
  for mode in found:
    # A script may keep the specs for TPUs beside the new ones.
    new = [edit for edit in found[mode] if edit.state != TO_DO]
    edits += new or found[mode]
  for step, wanted in ((STEPS[2], "train"), (STEPS[3], "predict or eval")):
    if not any(edit.step == step for edit in edits):
      edits.append(Edit(step, NONE, None, "no {} spec is here".format(wanted)))
  return sorted(edits, key=lambda edit: (edit.step, edit.line or 0))


def _spec_edit(step: str, name: str, mode: str, call: ast.Call) -> Edit:
  if name == "TPUEstimatorSpec":
    return Edit(step, TO_DO, call.lineno,
                "for {}, instead".format(mode) if mode else "instead",
                SPEC.get(mode, ("tf.estimator.EstimatorSpec(...)",)))
  for old, new in (("scaffold_fn", "scaffold=, an object, no function"),
                   ("eval_metrics", "eval_metric_ops=, a dict")):
    if old in keywords(call):
      return Edit(step, WRONG, call.lineno,
                  "EstimatorSpec has no {}=: it takes {}".format(old, new))
  return Edit(step, DONE, call.lineno, mode)


def mode_of(source: Source, call: ast.Call) -> str:
  """What a spec is for: "train", "eval", "predict" or "" (cannot tell)."""
  for keyword, mode in (("train_op", "train"), ("eval_metrics", "eval"),
                        ("eval_metric_ops", "eval"),
                        ("predictions", "predict")):
    if keyword in keywords(call):
      return mode
  for parent, child in source.ancestors(call):
    if isinstance(parent, ast.If) and child in parent.body:
      for mode in ("train", "eval", "predict"):
        if mode.upper() in names_in(parent.test):
          return mode
  return ""


def run_config_edits(source: Source) -> List[Edit]:
  """Step 5: a RunConfig with a distribution strategy."""
  return _replacement_edits(
      STEPS[4], RUN_CONFIG, "train_distribute",
      old=[call for name, call in source.calls_of("RunConfig")
           if "tpu" in name.split(".")],
      new=[call for name, call in source.calls_of("RunConfig")
           if "tpu" not in name.split(".")])


def estimator_edits(source: Source) -> List[Edit]:
  """Step 6: Estimator, and the call of model_fn_builder before it."""
  edits = []
  for _, call in source.calls_of("model_fn_builder"):
    use_tpu = keywords(call).get("use_tpu")
    if use_tpu is not None and literal(use_tpu) is not False:
      edits.append(Edit(STEPS[5], TO_DO, call.lineno,
                        "at the end of this call", BUILDER))
  return edits + _replacement_edits(
      STEPS[5], ESTIMATOR, "params",
      old=[call for _, call in source.calls_of("TPUEstimator")],
      new=[call for _, call in source.calls_of("Estimator")])


def _replacement_edits(step: str, code: Tuple[str, ...], keyword: str,
                       old: List[ast.Call], new: List[ast.Call]) -> List[Edit]:
  """Edits for a call that another one, with a new keyword, replaces."""
  if new:
    return [Edit(step, DONE, call.lineno) if keyword in keywords(call) else
            Edit(step, WRONG, call.lineno, "it lacks {}=: as here".format(
                keyword), code) for call in new]
  if old:
    return [Edit(step, TO_DO, call.lineno, "instead", code) for call in old]
  return [Edit(step, NONE, None, "none is made here")]


def num_steps_edits(source: Source) -> List[Edit]:
  """The number of steps, where it comes from the number of epochs."""
  step = STEPS[6]
  edits = []
  for node in ast.walk(source.tree):
    if not isinstance(node, ast.Assign) or "num_train_steps" not in {
        dotted_name(target) for target in node.targets}:
      continue
    names = names_in(node.value)
    if "num_gpus" in names:
      edits.append(Edit(step, DONE, node.lineno))
    elif "train_batch_size" in names:
      edits.append(Edit(step, TO_DO, node.lineno,
                        "divide by the rows of all GPUs", NUM_STEPS))
  for name, call in source.flags():
    if name == "num_train_steps":
      edits.append(Edit(step, NONE, call.lineno,
                        "a flag; each step takes the rows of all GPUs"))
  return edits


def edits_of(source: Source) -> List[Edit]:
  """All edits of a script, in the order of STEPS."""
  edits: List[Edit] = []
  for find in (flag_edits, scaffold_edits, spec_edits, run_config_edits,
               estimator_edits, num_steps_edits):
    edits += find(source)
  return edits


def report(path: str) -> List[str]:
  """The report on one script, as lines of text."""
  try:
    with open(path, "rb") as reader:
      edits = edits_of(Source(reader.read()))
  except OSError as error:
    return ["{}: cannot be read: {}".format(path, error.strerror)]
  except (SyntaxError, ValueError, RecursionError) as error:
    line = getattr(error, "lineno", None)
    return ["{}{}: is not Python 3 ({}); no edits are listed".format(
        path, ":%d" % line if line else "",
        getattr(error, "msg", None) or error)]
  left = sum(edit.state in (TO_DO, WRONG) for edit in edits)
  lines = ["{}: {}".format(path, "{} edit{} left".format(
      left, "" if left == 1 else "s") if left else "nothing left to edit")]
  for edit in edits:
    where = "line {}".format(edit.line) if edit.line else "-"
    lines.append("  {:<9} {} ({}){}{}".format(
        where, edit.step, edit.state, edit.text and ": " + edit.text,
        ":" if edit.code else ""))
    lines += [" " * 16 + line for line in edit.code]
  return lines


def main(arguments: Optional[List[str]] = None) -> int:
  """Prints the reports; returns the exit status."""
  parser = argparse.ArgumentParser(
      description="Lists the edits that several GPUs need in run scripts.")
  parser.add_argument("script", nargs="+", help="a run script, run_*.py")
  for path in parser.parse_args(arguments).script:
    print("\n" + "\n".join(report(path)))
  print(NOTES)
  return 0


if __name__ == "__main__":
  sys.exit(main())
