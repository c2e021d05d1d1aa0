"""How fast SQuAD files become features, against a straightforward program.

  python benchmarks/squad_features.py --train_file=train-v1.1.json \
      --vocab_file=vocab.txt --workers=2

Both read the file, load the vocabulary and make all training features, in one
process. The straightforward program does each step as one would first write
it: character by character, every question tokenises its document again, every
piece looks through all windows for the best one, every answer is looked for
among all joined sub-spans. The features must be the same to the last number;
this is checked before anything is timed.

With --workers the project also makes what a run makes: the encoded rows of a
TFRecord file, in one process and in so many, whose start is part of the time.
The straightforward program encodes nothing.
"""
import argparse
import functools
import json
import os
import platform
import statistics
import sys
import tempfile
import time
import unicodedata

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, ROOT)

import tokenization  # noqa: E402
from tasks import feature_rows  # noqa: E402
from tasks import squad_data  # noqa: E402
from tasks import squad_rows  # noqa: E402
from tasks import squad_windows  # noqa: E402


def _is_blank(char):
  return char in " \t\r\n" or unicodedata.category(char) == "Zs"


def _is_mark(char):
  code = ord(char)
  return (33 <= code <= 47 or 58 <= code <= 64 or 91 <= code <= 96
          or 123 <= code <= 126 or unicodedata.category(char)[0] == "P")


def _is_ideograph(char):
  code = ord(char)
  return (0x4E00 <= code <= 0x9FFF or 0x3400 <= code <= 0x4DBF
          or 0x20000 <= code <= 0x2A6DF or 0x2A700 <= code <= 0x2B73F
          or 0x2B740 <= code <= 0x2B81F or 0x2B820 <= code <= 0x2CEAF
          or 0xF900 <= code <= 0xFAFF or 0x2F800 <= code <= 0x2FA1F)


class PlainTokenizer:
  """The tokenizer without any haste; same results as FullTokenizer."""

  def __init__(self, vocab_file, do_lower_case=True):
    self.do_lower_case = do_lower_case
    self.vocab = {}
    with open(vocab_file, encoding="utf-8", newline="\n") as reader:
      for index, line in enumerate(reader):
        self.vocab[line.strip()] = index

  def tokenize(self, text):
    """Returns the word pieces of `text`."""
    pieces = []
    for token in self.split(text):
      pieces.extend(self._cut(token))
    return pieces

  def convert_tokens_to_ids(self, tokens):
    """Returns the ids of word pieces."""
    ids = []
    for token in tokens:
      ids.append(self.vocab[token])
    return ids

  def split(self, text):
    """Returns the basic tokens of `text`."""
    clean = []
    for char in text:
      if char in "\0\ufffd":
        continue
      if _is_blank(char):
        clean.append(" ")
      elif unicodedata.category(char) in ("Cc", "Cf"):
        continue
      elif _is_ideograph(char):
        clean.append(" " + char + " ")
      else:
        clean.append(char)
    tokens = []
    for word in "".join(clean).split():
      if self.do_lower_case:
        plain = unicodedata.normalize("NFD", word.lower())
        word = "".join(c for c in plain if unicodedata.category(c) != "Mn")
      parts, apart = [], True
      for char in word:
        if _is_mark(char):
          parts.append(char)
          apart = True
        elif apart:
          parts.append(char)
          apart = False
        else:
          parts[-1] += char
      tokens.extend(parts)
    return " ".join(tokens).split()

  def _cut(self, token):
    if len(token) > 200:
      return ["[UNK]"]
    pieces, start = [], 0
    while start < len(token):
      end = len(token)
      while end > start:
        piece = token[start:end] if start == 0 else "##" + token[start:end]
        if piece in self.vocab:
          break
        end -= 1
      if end == start:
        return ["[UNK]"]
      pieces.append(piece)
      start = end
    return pieces


def read_plainly(train_file):
  """Reads version 1.1 training examples, character by character."""
  with open(train_file, encoding="utf-8") as reader:
    articles = json.load(reader)["data"]
  examples = []
  for article in articles:
    for paragraph in article["paragraphs"]:
      words, char_to_word, apart = [], [], True
      for char in paragraph["context"]:
        if char in " \t\r\n\u202f":
          apart = True
        elif apart:
          words.append(char)
          apart = False
        else:
          words[-1] += char
        char_to_word.append(len(words) - 1)
      for question in paragraph["qas"]:
        answer = question["answers"][0]
        first = answer["answer_start"]
        start = char_to_word[first]
        end = char_to_word[first + len(answer["text"]) - 1]
        text = " ".join(words[start:end + 1])
        if " ".join(answer["text"].split()) in text:
          examples.append(squad_data.SquadExample(
              question["id"], question["question"], words, answer["text"],
              start, end))
  return examples


def _narrow_plainly(pieces, first, last, tokenizer, text):
  wanted = " ".join(tokenizer.tokenize(text))
  for start in range(first, last + 1):
    for end in range(last, start - 1, -1):
      if " ".join(pieces[start:end + 1]) == wanted:
        return start, end
  return first, last


def _is_best_plainly(spans, index, position):
  best_score, best_index = None, None
  for i, (start, length) in enumerate(spans):
    if position < start or position > start + length - 1:
      continue
    score = (min(position - start, start + length - 1 - position)
             + 0.01 * length)
    if best_score is None or score > best_score:
      best_score, best_index = score, i
  return index == best_index


def featurize_plainly(examples, tokenizer, settings):
  """Yields the training features of `examples`, each made from scratch."""
  unique_id = squad_data.FIRST_UNIQUE_ID
  for example_index, example in enumerate(examples):
    query = tokenizer.tokenize(example.question_text)
    query = query[:settings.max_query_length]
    pieces, piece_to_word, word_to_piece = [], [], []
    for index, word in enumerate(example.doc_tokens):
      word_to_piece.append(len(pieces))
      for piece in tokenizer.tokenize(word):
        piece_to_word.append(index)
        pieces.append(piece)
    first = word_to_piece[example.start_position]
    last = len(pieces) - 1
    if example.end_position < len(example.doc_tokens) - 1:
      last = word_to_piece[example.end_position + 1] - 1
    answer = _narrow_plainly(pieces, first, last, tokenizer,
                             example.orig_answer_text)
    room = settings.max_seq_length - len(query) - 3
    spans, start = [], 0
    while start < len(pieces):
      length = min(len(pieces) - start, room)
      spans.append((start, length))
      if start + length == len(pieces):
        break
      start += min(length, settings.doc_stride)
    for index in range(len(spans)):
      yield _fill_plainly(unique_id, example_index, index, spans, query, pieces,
                          piece_to_word, answer, tokenizer, settings)
      unique_id += 1


def _fill_plainly(unique_id, example_index, index, spans, query, pieces,
                  piece_to_word, answer, tokenizer, settings):
  tokens, segment_ids = ["[CLS]"], [0]
  for piece in query:
    tokens.append(piece)
    segment_ids.append(0)
  tokens.append("[SEP]")
  segment_ids.append(0)
  to_word, is_best = {}, {}
  start, length = spans[index]
  for position in range(start, start + length):
    to_word[len(tokens)] = piece_to_word[position]
    is_best[len(tokens)] = _is_best_plainly(spans, index, position)
    tokens.append(pieces[position])
    segment_ids.append(1)
  tokens.append("[SEP]")
  segment_ids.append(1)
  input_ids = tokenizer.convert_tokens_to_ids(tokens)
  input_mask = [1] * len(input_ids)
  while len(input_ids) < settings.max_seq_length:
    input_ids.append(0)
    input_mask.append(0)
    segment_ids.append(0)
  first, last = 0, 0
  if start <= answer[0] and answer[1] <= start + length - 1:
    shift = len(query) + 2 - start
    first, last = answer[0] + shift, answer[1] + shift
  return squad_data.InputFeatures(
      unique_id, example_index, index, tokens, to_word, is_best, input_ids,
      input_mask, segment_ids, first, last, False)


def iterate_plainly(args, settings):
  """The straightforward program, from the files to the features."""
  tokenizer = PlainTokenizer(args.vocab_file, args.do_lower_case)
  return featurize_plainly(read_plainly(args.train_file), tokenizer, settings)


def iterate_project(args, settings):
  """The project's program, from the files to the features."""
  squad_windows.plan_windows.cache_clear()
  tokenizer = tokenization.FullTokenizer(args.vocab_file, args.do_lower_case)
  examples = squad_data.read_squad_examples(args.train_file, True)
  return squad_data.iterate_features(examples, tokenizer, settings, True,
                                     show_progress=False)


def iterate_rows(args, settings, num_workers):
  """The project's program, from the files to the encoded rows."""
  tokenizer = tokenization.FullTokenizer(args.vocab_file, args.do_lower_case)
  examples = squad_data.read_squad_examples(args.train_file, True)
  return feature_rows.iterate_rows(
      examples, squad_rows.SquadRowEncoder(tokenizer, settings, True),
      feature_rows.Labor(num_workers))


def choose_programs(num_workers):
  """Returns {name: program} of all that are to be timed."""
  programs = {"straightforward": iterate_plainly, "project": iterate_project}
  for count in sorted({1, num_workers} if num_workers else ()):
    programs["rows, %d process%s" % (count, "es" * (count > 1))] = (
        functools.partial(iterate_rows, num_workers=count))
  return programs


def assert_same_features(expected, actual):
  """Compares two streams of features; returns the number of features and of
  word pieces in them."""
  num_features = num_pieces = 0
  for one in expected:
    other = next(actual)
    assert vars(one) == vars(other), (vars(one), vars(other))
    num_features += 1
    num_pieces += len(one.tokens)
  assert next(actual, None) is None, "the project makes more features"
  return num_features, num_pieces


def cpu_seconds():
  """CPU time of this process and of those that it has started and ended."""
  times = os.times()
  return (times.user + times.system + times.children_user
          + times.children_system)


def measure(args, settings):
  """Returns {program: median (wall, CPU) seconds}.

  The programs take turns, so that other work on the machine slows both. The
  project's runs several times a turn: single runs of it are short.
  """
  programs = choose_programs(args.workers)
  times = {name: [] for name in programs}
  for _ in range(args.runs):
    for name, program in programs.items():
      for _ in range(1 if name == "straightforward" else args.project_runs):
        wall, cpu = time.perf_counter(), cpu_seconds()
        for _ in program(args, settings):
          pass  # as a writer of records would: look at each, keep none
        times[name].append((time.perf_counter() - wall, cpu_seconds() - cpu))
  return {name: tuple(map(statistics.median, zip(*pairs)))
          for name, pairs in times.items()}


def parse_arguments():
  """Reads the command line."""
  parser = argparse.ArgumentParser(
      description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
  parser.add_argument("--train_file", required=True, help="SQuAD 1.1 format")
  parser.add_argument("--vocab_file", required=True)
  parser.add_argument("--cased", dest="do_lower_case", action="store_false")
  parser.add_argument("--max_seq_length", type=int, default=384)
  parser.add_argument("--doc_stride", type=int, default=128)
  parser.add_argument("--max_query_length", type=int, default=64)
  parser.add_argument("--runs", type=int, default=3,
                      help="rounds; each has one run of the straightforward "
                      "program and some of the project's")
  parser.add_argument("--project_runs", type=int, default=5,
                      help="runs of the project's programs in a round")
  parser.add_argument("--workers", type=int, default=0,
                      help="also encode rows in so many processes, and in one")
  parser.add_argument("--copies", type=int, default=1,
                      help="take the articles of the file so many times: the "
                      "start of processes is for files of SQuAD's size")
  parser.add_argument("--json", metavar="PATH", help="write the figures there")
  return parser.parse_args()


def multiply(path, copies, folder):
  """Writes a file with the articles of another one several times over."""
  with open(path, encoding="utf-8") as reader:
    content = json.load(reader)
  content["data"] *= copies
  multiple = os.path.join(folder, "train.json")
  with open(multiple, "w", encoding="utf-8") as writer:
    json.dump(content, writer)
  return multiple


def print_table(report, times):
  """Prints and reports the times of all programs."""
  print("%-18s %8s %8s %12s %14s" % ("program", "wall s", "CPU s", "features/s",
                                     "word pieces/s"))
  plain_wall, plain_cpu = times["straightforward"]
  for name, (wall, cpu) in times.items():
    report["programs"][name] = {
        "wall_s": wall, "cpu_s": cpu,
        "features_per_s": report["features"] / wall,
        "word_pieces_per_s": report["word_pieces"] / wall,
        "speedup_wall": plain_wall / wall, "speedup_cpu": plain_cpu / cpu}
    print("%-18s %8.3f %8.3f %12.0f %14.0f   %.1f times as fast (CPU %.1f)" % (
        name, wall, cpu, report["features"] / wall,
        report["word_pieces"] / wall, plain_wall / wall, plain_cpu / cpu))


def main():
  """Checks, measures, prints the table."""
  args = parse_arguments()
  settings = squad_data.FeatureSettings(args.max_seq_length, args.doc_stride,
                                        args.max_query_length)
  with tempfile.TemporaryDirectory() as folder:
    args.train_file = multiply(args.train_file, args.copies, folder)
    num_features, num_pieces = assert_same_features(
        iterate_plainly(args, settings), iterate_project(args, settings))
    print("%d features of %d word pieces, the same from both programs"
          % (num_features, num_pieces))
    print("Python %s, %s, median of %d rounds"
          % (platform.python_version(), platform.machine(), args.runs))
    report = {"python": platform.python_version(), "runs": args.runs,
              "settings": settings._asdict(), "features": num_features,
              "word_pieces": num_pieces, "programs": {}}
    print_table(report, measure(args, settings))
  if args.json:
    with open(args.json, "w", encoding="utf-8") as writer:
      json.dump(report, writer, indent=2)
      writer.write("\n")


if __name__ == "__main__":
  main()
