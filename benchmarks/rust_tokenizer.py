"""One process of benchmarks/data.py --against_python: Hugging Face's tokenizer.

Needs the Python package tokenizers, which this project does not. The caller
sets RAYON_NUM_THREADS=1.
"""
import argparse

from tokenizers import BertWordPieceTokenizer

from token_passes import report_passes


def main():
  parser = argparse.ArgumentParser(description=__doc__)
  parser.add_argument("--input_file", required=True)
  parser.add_argument("--vocab_file", required=True)
  parser.add_argument("--cased", dest="do_lower_case", action="store_false")
  parser.add_argument("--ids_file")
  arguments = parser.parse_args()
  tokenizer = BertWordPieceTokenizer(
      arguments.vocab_file, lowercase=arguments.do_lower_case)
  # The class of all tokenizers, without a layer of Python.
  inner = tokenizer._tokenizer

  def line_by_line(lines):
    for line in lines:
      yield inner.encode(line, add_special_tokens=False).ids

  def all_at_once(lines):
    # The fast one does not tell where a piece came from.
    encode = getattr(inner, "encode_batch_fast", inner.encode_batch)
    for encoding in encode(lines, add_special_tokens=False):
      yield encoding.ids

  report_passes(arguments, {"line by line": line_by_line,
                            "all lines in one call": all_at_once})


if __name__ == "__main__":
  main()
