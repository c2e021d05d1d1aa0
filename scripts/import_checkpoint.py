"""Turns a Hugging Face BERT into a checkpoint with Google's variable names.

  python scripts/import_checkpoint.py --input_dir=HF_FOLDER --output_dir=OUT
  python scripts/import_checkpoint.py --package=PYTHON_PACKAGE --output_dir=OUT

Reads `config.json`, `model.safetensors` and `vocab.txt`; writes
`bert_model.ckpt.*`, `bert_config.json` and `vocab.txt`, then builds the model
from what it wrote. Nothing is downloaded, and nothing but safetensors files is
read: a pickled `pytorch_model.bin` can run code when it is opened.
"""
import argparse
import importlib.util
import json
import os
import sys
from typing import List, Optional

import numpy as np
import safetensors.numpy
import tensorflow.compat.v1 as tf
from safetensors import SafetensorError  # type: ignore[attr-defined]

# A script's own folder is on the path, the project's is not.
sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

import modeling
from hf_bert import (
  WEIGHTS,
  Arrays,
  Conversion,
  Source,
  convert,
)
from multigpu.errors import UserError
from multigpu.variable_shapes import variable_shapes

CHECKPOINT = "bert_model.ckpt"
# Nothing here is worth a GPU, and someone else may be using it.
CPU_ONLY = tf.ConfigProto(device_count={"GPU": 0})


def find_folder(path: str) -> str:
  """Returns the folder with `config.json` and the weights at or below `path`.

  A Python package keeps its model in a subfolder, hence the search.

  Raises:
    UserError: there is no such folder or more than one.
  """
  if not tf.io.gfile.isdir(path):
    raise UserError("--input_dir=%s is not a folder" % path)
  found = [
      folder for folder, _, files in tf.io.gfile.walk(path)
      if "config.json" in files and WEIGHTS in files]
  found = [path] if path in found else found
  if not found:
    raise UserError(
        "%s has no folder with config.json and %s. A model saved as "
        "pytorch_model.bin or in several parts must first be saved again with "
        "save_pretrained(folder, safe_serialization=True, "
        'max_shard_size="100GB").' % (path, WEIGHTS))
  if len(found) > 1:
    raise UserError("%s holds %d models (%s): name one of them with "
                    "--input_dir" % (path, len(found), ", ".join(found)))
  return found[0]


def package_folder(package: str) -> str:
  """Returns the folder of an installed Python package, without importing it."""
  spec = importlib.util.find_spec(package)
  if spec is None or not spec.submodule_search_locations:
    raise UserError("--package=%s is not an installed Python package: install "
                    "it with pip, or pass --input_dir" % package)
  return list(spec.submodule_search_locations)[0]


def read_json(path: str) -> dict:
  """Reads a file with one JSON object; raises UserError on anything else."""
  try:
    with tf.io.gfile.GFile(path, "r") as reader:
      value = json.loads(reader.read())
  except ValueError as error:
    raise UserError("%s is not valid JSON: %s" % (path, error)) from error
  if not isinstance(value, dict):
    raise UserError("%s: wanted a JSON object, found %s" %
                    (path, type(value).__name__))
  return value


def read_tensors(path: str) -> Arrays:
  """Reads a safetensors file; raises UserError when it is damaged."""
  with tf.io.gfile.GFile(path, "rb") as reader:
    data = reader.read()
  try:
    return safetensors.numpy.load(data)
  except SafetensorError as error:
    raise UserError("%s is not a complete safetensors file: %s" %
                    (path, error)) from error
  except KeyError as error:
    raise UserError(
        "%s holds numbers of type %s, which NumPy does not have: save the "
        "model again as float32" % (path, error)) from error


def read_source(folder: str) -> Source:
  """Reads a Hugging Face BERT folder.

  Raises:
    UserError: a file is absent or damaged.
  """
  vocab_file = os.path.join(folder, "vocab.txt")
  if not tf.io.gfile.exists(vocab_file):
    raise UserError("%s has no vocab.txt: a BERT vocabulary (one word piece "
                    "per line) is wanted there" % folder)
  with tf.io.gfile.GFile(vocab_file, "rb") as reader:
    vocab = reader.read()
  tokenizer_file = os.path.join(folder, "tokenizer_config.json")
  do_lower_case = None
  if tf.io.gfile.exists(tokenizer_file):
    do_lower_case = read_json(tokenizer_file).get("do_lower_case")
  return Source(folder, read_json(os.path.join(folder, "config.json")),
                read_tensors(os.path.join(folder, WEIGHTS)), vocab,
                do_lower_case)


def write_checkpoint(variables: Arrays, path: str) -> None:
  """Writes float32 arrays as a TensorFlow checkpoint."""
  with tf.Graph().as_default(), tf.Session(config=CPU_ONLY) as session:
    copies = [tf.get_variable(name, array.shape, tf.float32,
                              tf.zeros_initializer())
              for name, array in sorted(variables.items())]
    session.run(tf.global_variables_initializer())
    for copy in copies:
      copy.load(variables[copy.op.name], session)
    saver = tf.train.Saver(save_relative_paths=True)
    saver.save(session, path, write_meta_graph=False)


def write_output(conversion: Conversion, vocab: bytes, output_dir: str) -> str:
  """Writes the three parts of a model; returns the checkpoint's prefix."""
  tf.io.gfile.makedirs(output_dir)
  prefix = os.path.join(output_dir, CHECKPOINT)
  write_checkpoint(conversion.variables, prefix)
  config_file = os.path.join(output_dir, "bert_config.json")
  with tf.io.gfile.GFile(config_file, "w") as writer:
    writer.write(json.dumps(conversion.config, indent=2, sort_keys=True) + "\n")
  with tf.io.gfile.GFile(os.path.join(output_dir, "vocab.txt"), "wb") as writer:
    writer.write(vocab)
  return prefix


def check_output(conversion: Conversion, output_dir: str) -> int:
  """Builds the model from the files written and compares every variable.

  Returns:
    The number of the model's variables that the checkpoint fills.

  Raises:
    RuntimeError: the model did not find what was written for it.
  """
  prefix = os.path.join(output_dir, CHECKPOINT)
  config = modeling.BertConfig.from_json_file(
      os.path.join(output_dir, "bert_config.json"))
  with tf.Graph().as_default(), tf.Session(config=CPU_ONLY) as session:
    ids = tf.constant([[0, 1, 2, 3]], tf.int32) % config.vocab_size
    model = modeling.BertModel(config, is_training=False, input_ids=ids)
    variables = tf.trainable_variables()
    assignment, _ = modeling.get_assignment_map_from_checkpoint(
        variables, prefix)
    tf.train.init_from_checkpoint(prefix, assignment)
    session.run(tf.global_variables_initializer())
    for variable, value in zip(variables, session.run(variables)):
      name = variable.op.name
      if name in conversion.missing:
        continue
      if name not in assignment or not np.array_equal(
          value, conversion.variables[name]):
        raise RuntimeError("%s was not read back from %s" % (name, prefix))
    if not np.isfinite(session.run(model.get_sequence_output())).all():
      raise RuntimeError("the imported model's output is not finite")
  return len(assignment)


def report(source: Source, conversion: Conversion, loaded: int) -> List[str]:
  """Says in lines what was imported, left out and missing."""
  total = len(variable_shapes(conversion.config))
  lines = ["imported %d variables from %s" %
           (len(conversion.variables), source.folder)]
  if conversion.left_out:
    lines.append("left out, no such variable here: " +
                 ", ".join(conversion.left_out))
  if conversion.missing:
    lines.append("not in the source, random at the start of training: " +
                 ", ".join(conversion.missing))
  lines += ["note: " + note for note in conversion.notes]
  lines.append("checked: BertModel loads %d of %d variables" % (loaded, total))
  if source.do_lower_case is not None:
    lines.append("run it with --do_lower_case=%s" % source.do_lower_case)
  return lines


def parse_arguments(arguments: Optional[List[str]]) -> argparse.Namespace:
  """Parses the command line."""
  parser = argparse.ArgumentParser(
      description="Turns a Hugging Face BERT into a checkpoint with Google's "
      "variable names.")
  source = parser.add_mutually_exclusive_group(required=True)
  source.add_argument("--input_dir", help="folder with config.json, %s and "
                      "vocab.txt, or one that holds such a folder" % WEIGHTS)
  source.add_argument("--package", help="installed Python package that holds "
                      "such a folder")
  parser.add_argument("--output_dir", required=True, help="folder for %s.*, "
                      "bert_config.json and vocab.txt" % CHECKPOINT)
  return parser.parse_args(arguments)


def main(arguments: Optional[List[str]] = None) -> int:
  """Runs the import; returns the exit status."""
  options = parse_arguments(arguments)
  tf.logging.set_verbosity(tf.logging.ERROR)
  try:
    top = (package_folder(options.package) if options.package
           else options.input_dir)
    source = read_source(find_folder(top))
    conversion = convert(source)
  except UserError as error:
    print("error: %s" % error, file=sys.stderr)
    return 1
  prefix = write_output(conversion, source.vocab, options.output_dir)
  loaded = check_output(conversion, options.output_dir)
  for line in report(source, conversion, loaded):
    print(line)
  print("checkpoint: %s" % prefix)
  return 0


if __name__ == "__main__":
  sys.exit(main())
