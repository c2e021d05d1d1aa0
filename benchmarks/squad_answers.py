"""Times answers from logits against a straightforward implementation.

    python benchmarks/squad_answers.py --predict_file=dev.json \
        --vocab_file=vocab.txt

Features are made first and not timed. Logits are random, from `--seed`. Both
sides write the three result files, which must be equal byte for byte, and are
timed in turn: wall and CPU seconds, medians of `--repeats`.

The straightforward side is written for being read: per feature a loop over all
best starts and ends, one sort, and for each candidate a tokenization of its
part of the document, character by character. It runs twice, with such a
tokenizer and with the project's faster one.
"""
import argparse
import collections
import json
import logging
import math
import os
import statistics
import sys
import tempfile
import time
import unicodedata

import numpy as np

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)),
                                os.pardir))
from tasks import squad_answers, squad_data, squad_examples
import tokenization

FILES = ("predictions.json", "nbest_predictions.json", "null_odds.json")


class PlainBasicTokenizer:
  """BERT's basic tokens, one character after the other."""

  def __init__(self, do_lower_case):
    self.do_lower_case = do_lower_case

  def tokenize(self, text):
    tokens = []
    for word in self._clean(text).split():
      if self.do_lower_case:
        word = "".join(
            char for char in unicodedata.normalize("NFD", word.lower())
            if unicodedata.category(char) != "Mn")
      tokens.extend(self._split_punctuation(word))
    return " ".join(tokens).split()

  def _clean(self, text):
    output = []
    for char in text:
      code = ord(char)
      if code in (0, 0xfffd) or tokenization._is_control(char):
        continue
      if tokenization._is_whitespace(char):
        output.append(" ")
      elif tokenization._is_chinese_char(code):
        output.extend((" ", char, " "))
      else:
        output.append(char)
    return "".join(output)

  def _split_punctuation(self, word):
    parts = []
    starts_part = True
    for char in word:
      if tokenization._is_punctuation(char):
        parts.append(char)
        starts_part = True
      elif starts_part:
        parts.append(char)
        starts_part = False
      else:
        parts[-1] += char
    return parts


def plain_final_text(pred_text, orig_text, tokenizer):
  """What squad_final_text.get_final_text returns."""
  def without_blanks(text):
    kept = [(char, index) for index, char in enumerate(text) if char != " "]
    return ("".join(char for char, _ in kept),
            {count: index for count, (_, index) in enumerate(kept)})

  token_text = " ".join(tokenizer.tokenize(orig_text))
  begin = token_text.find(pred_text)
  if begin == -1:
    return orig_text
  orig_letters, orig_positions = without_blanks(orig_text)
  token_letters, token_positions = without_blanks(token_text)
  if len(orig_letters) != len(token_letters):
    return orig_text
  count_at = {index: count for count, index in token_positions.items()}
  first = orig_positions.get(count_at.get(begin))
  last = orig_positions.get(count_at.get(begin + len(pred_text) - 1))
  if first is None or last is None:
    return orig_text
  return orig_text[first:last + 1]


def plain_best_indexes(logits, count):
  order = sorted(enumerate(logits), key=lambda pair: pair[1], reverse=True)
  return [index for index, _ in order[:count]]


def plain_candidates(features, results, settings):
  """All valid spans of a question as (feature, start, end, logits), sorted."""
  candidates = []
  for feature in features:
    result = results[feature.unique_id]
    for start in plain_best_indexes(result.start_logits, settings.n_best_size):
      for end in plain_best_indexes(result.end_logits, settings.n_best_size):
        if (start in feature.token_to_orig_map and
            end in feature.token_to_orig_map and
            feature.token_is_max_context.get(start, False) and
            start <= end < start + settings.max_answer_length):
          candidates.append((feature, start, end, result.start_logits[start],
                             result.end_logits[end]))
  if settings.version_2_with_negative:
    candidates.append((None, 0, 0) + plain_null(features, results))
  return sorted(candidates, key=lambda c: c[3] + c[4], reverse=True)


def plain_null(features, results):
  nulls = [(results[feature.unique_id].start_logits[0],
            results[feature.unique_id].end_logits[0]) for feature in features]
  return min(nulls, key=sum)


def plain_nbest(example, candidates, settings, tokenizer):
  """The best entries [text, start logit, end logit] with different texts."""
  nbest = []
  seen = set()
  for feature, start, end, start_logit, end_logit in candidates:
    if len(nbest) >= settings.n_best_size:
      break
    text = ""
    if feature is not None:
      pieces = " ".join(feature.tokens[start:end + 1])
      pieces = pieces.replace(" ##", "").replace("##", "")
      words = example.doc_tokens[feature.token_to_orig_map[start]:
                                 feature.token_to_orig_map[end] + 1]
      text = plain_final_text(" ".join(pieces.split()), " ".join(words),
                              tokenizer)
      if text in seen:
        continue
    seen.add(text)
    nbest.append([text, start_logit, end_logit])
  return nbest


def plain_softmax(scores):
  top = max(scores)
  weights = [math.exp(score - top) for score in scores]
  total = 0.0
  for weight in weights:
    total += weight
  return [weight / total for weight in weights]


def plain_write(examples, features, results, settings, folder,
                tokenizer_class):
  """The whole job, straightforward."""
  by_example = collections.defaultdict(list)
  for feature in features:
    by_example[feature.example_index].append(feature)
  results = {result.unique_id: result for result in results}
  outputs = {name: collections.OrderedDict() for name in FILES}
  for index, example in enumerate(examples):
    tokenizer = tokenizer_class(settings.do_lower_case)
    own = by_example[index]
    candidates = plain_candidates(own, results, settings)
    nbest = plain_nbest(example, candidates, settings, tokenizer)
    if settings.version_2_with_negative:
      null = plain_null(own, results)
      if "" not in [entry[0] for entry in nbest]:
        nbest.append(["", null[0], null[1]])
    nbest = nbest or [["empty", 0.0, 0.0]]
    outputs["nbest_predictions.json"][example.qas_id] = [
        collections.OrderedDict(
            text=entry[0], probability=probability, start_logit=entry[1],
            end_logit=entry[2])
        for entry, probability in zip(nbest, plain_softmax(
            [entry[1] + entry[2] for entry in nbest]))]
    text = nbest[0][0]
    if settings.version_2_with_negative:
      best = next((entry for entry in nbest if entry[0]), None)
      odds = 1e6  # The project's answer where there is no span at all.
      if best is not None:
        odds = null[0] + null[1] - best[1] - best[2]
        text = best[0]
      if odds > settings.null_score_diff_threshold:
        text = ""
      outputs["null_odds.json"][example.qas_id] = odds
    outputs["predictions.json"][example.qas_id] = text
  for name in FILES if settings.version_2_with_negative else FILES[:2]:
    with open(os.path.join(folder, name), "w") as stream:
      stream.write(json.dumps(outputs[name], indent=4) + "\n")


def fast_write(examples, features, results, settings, folder):
  """The project's side."""
  squad_answers.write_predictions(
      examples, features, results, settings.n_best_size,
      settings.max_answer_length, settings.do_lower_case,
      *(os.path.join(folder, name) for name in FILES),
      version_2_with_negative=settings.version_2_with_negative,
      null_score_diff_threshold=settings.null_score_diff_threshold)


def make_inputs(args):
  """Examples, features, and results with Python floats (as from a record)."""
  examples = squad_examples.read_squad_examples(args.predict_file, False)
  tokenizer = tokenization.FullTokenizer(args.vocab_file, args.do_lower_case)
  features = list(squad_data.iterate_features(
      examples, tokenizer,
      squad_data.FeatureSettings(args.max_seq_length, args.doc_stride, 64),
      False))
  random = np.random.RandomState(args.seed)
  shape = (len(features), 2, args.max_seq_length)
  logits = random.normal(scale=4, size=shape).astype(np.float32)
  return examples, features, [
      squad_answers.RawResult(feature.unique_id, start.tolist(), end.tolist())
      for feature, (start, end) in zip(features, logits)]


def measure(sides, inputs, settings, repeats):
  """Returns {side: {"wall_s", "cpu_s"}}, medians; checks equal files."""
  times = {name: [] for name in sides}
  for _ in range(repeats):
    written = {}
    for name, write in sides.items():
      with tempfile.TemporaryDirectory() as folder:
        wall, cpu = time.perf_counter(), time.process_time()
        write(*inputs, settings, folder)
        times[name].append((time.perf_counter() - wall,
                            time.process_time() - cpu))
        written[name] = {}
        for file_name in os.listdir(folder):
          with open(os.path.join(folder, file_name), "rb") as stream:
            written[name][file_name] = stream.read()
    assert all(files == written["project"] for files in written.values()), (
        "the sides wrote different files")
  return {name: {"wall_s": statistics.median(wall for wall, _ in runs),
                 "cpu_s": statistics.median(cpu for _, cpu in runs)}
          for name, runs in times.items()}


def parse_args():
  parser = argparse.ArgumentParser(
      description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
  parser.add_argument("--predict_file", required=True)
  parser.add_argument("--vocab_file", required=True)
  parser.add_argument("--cased", dest="do_lower_case", action="store_false")
  parser.add_argument("--max_seq_length", type=int, default=384)
  parser.add_argument("--doc_stride", type=int, default=128)
  parser.add_argument("--n_best_size", type=int, default=20)
  parser.add_argument("--max_answer_length", type=int, default=30)
  parser.add_argument("--seed", type=int, default=1)
  parser.add_argument("--repeats", type=int, default=5)
  parser.add_argument("--json", help="also write the figures to this file")
  return parser.parse_args()


def main():
  args = parse_args()
  # Random logits leave some questions without a span.
  logging.getLogger("tasks.squad_answers").setLevel(logging.ERROR)
  inputs = make_inputs(args)
  sides = {
      "straightforward": lambda *given: plain_write(
          *given, PlainBasicTokenizer),
      "straightforward, project's tokenizer": lambda *given: plain_write(
          *given, tokenization.BasicTokenizer),
      "project": fast_write}
  report = {"questions": len(inputs[0]), "features": len(inputs[1]),
            "max_seq_length": args.max_seq_length, "repeats": args.repeats}
  print("%(questions)d questions, %(features)d features of %(max_seq_length)d, "
        "medians of %(repeats)d" % report)
  for version, is_v2 in (("v1.1", False), ("v2.0", True)):
    settings = squad_answers.AnswerSettings(
        args.n_best_size, args.max_answer_length, args.do_lower_case, is_v2)
    report[version] = measure(sides, inputs, settings, args.repeats)
    own = report[version]["project"]
    print("%-5s %-38s %8s %8s %14s" % (version, "", "wall s", "CPU s",
                                       "wall / project"))
    for name, figures in report[version].items():
      print("      %-38s %8.3f %8.3f %14.1f" % (
          name, figures["wall_s"], figures["cpu_s"],
          figures["wall_s"] / own["wall_s"]))
  if args.json:
    with open(args.json, "w") as stream:
      stream.write(json.dumps(report, indent=2) + "\n")


if __name__ == "__main__":
  main()
