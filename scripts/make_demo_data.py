"""Writes the demo's data: a SQuAD v1.1 sample, a vocabulary, a configuration.

  python scripts/make_demo_data.py --output_dir=samples/squad

The texts are made from the templates below: short accounts of two people, with
questions whose answer stands in the text. What is asked for (a colour, a town,
a day) narrows the answer down, and the person named decides between the two: a
two-layer model learns that from nothing in about a minute. No text is
in both files, and the same arguments give the same bytes on every machine.
"""
import argparse
import collections
import json
import os
import random
import re
import sys
from typing import Dict, List, NamedTuple, Sequence, Tuple

NAMES = (
    "Anna", "Boris", "Clara", "Dario", "Edith", "Felix", "Greta", "Hugo",
    "Irene", "Jonas", "Karla", "Leo", "Mira", "Nils", "Olga", "Pablo",
    "Quinn", "Rosa", "Stefan", "Tilda", "Ugo", "Vera", "Walter", "Yara")

# The words that a slot of a template may take.
SLOTS = {
    "colour": ("red", "blue", "green", "yellow", "white", "black", "brown",
               "dark grey", "pale pink", "bright orange"),
    "thing": ("boat", "house", "bicycle", "coat", "kite", "door", "lamp"),
    "town": ("Marlow", "Estrel", "Corvale", "Old Harbour", "Tunwick",
             "North Bay", "Lindora", "Pinefield", "San Ramo", "Grey Hill"),
    "number": ("two", "three", "four", "five", "seven", "nine", "eleven",
               "more than twenty", "about forty", "sixty"),
    "animal": ("goats", "hens", "ducks", "sheep", "rabbits", "horses"),
    "day": ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday",
            "Sunday morning", "the first of May"),
    "errand": ("goes to the market", "visits the library", "plays chess",
               "cleans the windows", "swims in the lake"),
    "job": ("baker", "pilot", "nurse", "gardener", "painter", "sailor",
            "school teacher", "bus driver", "piano tuner", "judge"),
    "food": ("warm bread", "tomato soup", "rice", "fried fish", "apples",
             "cold noodles", "cheese", "a large salad", "pancakes"),
    "meal": ("breakfast", "lunch", "dinner"),
}


class Fact(NamedTuple):
  """One kind of statement.

  Attributes:
    answer: the slot that is asked for.
    statements: sentences with the slots in braces; `name` is the person.
    questions: questions without the slot `answer`.
  """
  answer: str
  statements: Tuple[str, ...]
  questions: Tuple[str, ...]


FACTS = (
    Fact("colour",
         ("The {thing} of {name} is {colour}.",
          "{name} has painted the {thing} {colour}."),
         ("What colour is the {thing} of {name}?",
          "Which colour has {name} given the {thing}?")),
    Fact("town",
         ("{name} lives in {town}.",
          "The family of {name} came to {town} long ago."),
         ("Where does {name} live?",
          "In which town does one find the family of {name}?")),
    Fact("number",
         ("{name} keeps {number} {animal} behind the barn.",
          "There are {number} {animal} on the farm of {name}."),
         ("How many {animal} does {name} keep?",
          "How many {animal} are on the farm of {name}?")),
    Fact("day",
         ("On {day}, {name} {errand}.",
          "{name} {errand} on {day}, rain or shine."),
         ("On which day is it that {name} {errand}?",
          "When is it that {name} {errand}?")),
    Fact("job",
         ("{name} has worked as a {job} for years.",
          "As a {job}, {name} gets up early."),
         ("What is the job of {name}?",
          "What does {name} do for a living?")),
    Fact("food",
         ("For {meal}, {name} likes {food} best.",
          "{name} always has {food} for {meal}."),
         ("What does {name} have for {meal}?",
          "Which food does {name} like for {meal}?")),
)

# So small a model starts to learn sooner from larger weights than BERT's 0.02.
CONFIG = {
    "attention_probs_dropout_prob": 0.0,
    "hidden_act": "gelu",
    "hidden_dropout_prob": 0.0,
    "hidden_size": 64,
    "initializer_range": 0.1,
    "intermediate_size": 256,
    "max_position_embeddings": 128,
    "num_attention_heads": 4,
    "num_hidden_layers": 2,
    "type_vocab_size": 2,
}


def pick(rng: random.Random, choices: Sequence) -> object:
  """Takes one of `choices`.

  By `random()` alone, which gives the same numbers in every release of Python;
  `choice` and `shuffle` do not promise that.
  """
  return choices[int(rng.random() * len(choices))]


def shuffled(rng: random.Random, items: Sequence) -> list:
  """Returns the items in a random order (see `pick`)."""
  return [item for _, item in sorted(
      ((rng.random(), item) for item in items), key=lambda pair: pair[0])]


class Statement(NamedTuple):
  """A fact about one person: its sentence, question and answer.

  Attributes:
    text: the sentence.
    question: the question that it answers.
    answer: the answer's text.
    start: where the answer begins in `text`.
  """
  text: str
  question: str
  answer: str
  start: int


def answers_of(name: str, fact: Fact, is_dev: bool) -> List[str]:
  """Returns the answers that `fact` may have for a person in one of the files.

  Every fifth pair of person and answer is kept for the dev file: no pair is in
  both, so what was learned by heart does not help there.
  """
  person = NAMES.index(name)
  return [answer for place, answer in enumerate(SLOTS[fact.answer])
          if ((person + place) % 5 == 0) == is_dev]


def make_statement(rng: random.Random, name: str, fact: Fact,
                   is_dev: bool) -> Statement:
  """Fills one of the templates of `fact` for a person."""
  values = {slot: pick(rng, choices) for slot, choices in SLOTS.items()}
  answer = str(pick(rng, answers_of(name, fact, is_dev)))
  values.update({"name": name, fact.answer: answer})
  template = str(pick(rng, fact.statements))
  question = str(pick(rng, fact.questions)).format(**values)
  before = template.split("{%s}" % fact.answer)[0].format(**values)
  return Statement(template.format(**values), question, answer, len(before))


def make_paragraph(rng: random.Random, is_dev: bool) -> Dict:
  """Returns a context of five sentences on two people, with four questions.

  Two of the sentences are of one kind: for the question on one of them only
  the person named says which of the two is meant.
  """
  first, second = shuffled(rng, NAMES)[:2]
  kinds = shuffled(rng, FACTS)
  shared = [make_statement(rng, name, kinds[0], is_dev)
            for name in (first, second)]
  if shared[0].answer == shared[1].answer:
    return make_paragraph(rng, is_dev)
  others = [make_statement(rng, name, kind, is_dev)
            for name, kind in zip((first, second, first), kinds[1:])]
  context, asked = "", []
  for statement in shuffled(rng, shared + others):
    context += " " if context else ""
    asked.append((statement, len(context) + statement.start))
    context += statement.text
  asked = [item for item in asked if item[0] is not shared[1]]
  return {"context": context, "qas": [
      {"question": statement.question,
       "answers": [{"text": statement.answer, "answer_start": start}]}
      for statement, start in asked]}


def make_paragraphs(rng: random.Random, count: int, label: str) -> List[Dict]:
  """Returns `count` different paragraphs with ids that begin with `label`."""
  paragraphs = collections.OrderedDict()  # type: Dict[str, Dict]
  while len(paragraphs) < count:
    paragraph = make_paragraph(rng, is_dev=label == "dev")
    paragraphs.setdefault(paragraph["context"], paragraph)
  questions = [qa for paragraph in paragraphs.values()
               for qa in paragraph["qas"]]
  for number, question in enumerate(questions, 1):
    question["id"] = "%s-%d" % (label, number)
  return list(paragraphs.values())


def make_vocab() -> List[str]:
  """Returns word pieces for all texts that the templates can give.

  Words of more than seven letters are there in two pieces, and every letter is
  there, so that any other word in small letters has its pieces too.
  """
  texts = list(NAMES) + [text for slot in SLOTS.values() for text in slot]
  for fact in FACTS:
    texts += fact.statements + fact.questions
  words = sorted({
      word for text in texts
      for word in re.findall("[a-z]+", re.sub(r"{\w+}", " ", text.lower()))})
  letters = [chr(code) for code in range(ord("a"), ord("z") + 1)]
  letters += [str(digit) for digit in range(10)]
  whole = [word for word in words if 1 < len(word) <= 7]
  halves = [piece for word in words if len(word) > 7
            for piece in (word[:4], "##" + word[4:])]
  pieces = (["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"] +
            list(".,;:!?'\"()-") + letters +
            ["##" + letter for letter in letters] + whole + halves)
  return list(collections.OrderedDict.fromkeys(pieces))


def write_text(path: str, text: str) -> None:
  """Writes one text file that does not depend on the machine."""
  with open(path, "w", encoding="utf-8", newline="\n") as writer:
    writer.write(text)


def format_squad(paragraphs: Sequence[Dict]) -> str:
  """Returns the text of a SQuAD v1.1 file, one paragraph on a line."""
  lines = ",\n".join(
      json.dumps(paragraph, sort_keys=True, separators=(",", ":"))
      for paragraph in paragraphs)
  return ('{"version":"1.1","data":[{"title":"Two people","paragraphs":[\n%s\n'
          "]}]}\n" % lines)


def main(arguments: Sequence[str] = ()) -> int:
  """Writes the four files; returns the exit status."""
  parser = argparse.ArgumentParser(description="Writes the demo's data.")
  parser.add_argument("--output_dir", required=True)
  parser.add_argument("--train_paragraphs", type=int, default=400,
                      help="with four questions each (default: %(default)s)")
  parser.add_argument("--dev_paragraphs", type=int, default=50,
                      help="with four questions each (default: %(default)s)")
  parser.add_argument("--seed", type=int, default=1)
  options = parser.parse_args(arguments)
  os.makedirs(options.output_dir, exist_ok=True)
  vocab = make_vocab()
  files = {
      "vocab.txt": "\n".join(vocab) + "\n",
      "bert_config.json": json.dumps(
          dict(CONFIG, vocab_size=len(vocab)), indent=2, sort_keys=True) + "\n",
  }
  for label, count in (("train", options.train_paragraphs),
                       ("dev", options.dev_paragraphs)):
    rng = random.Random("%d %s" % (options.seed, label))
    files[label + ".json"] = format_squad(make_paragraphs(rng, count, label))
  for name, text in files.items():
    write_text(os.path.join(options.output_dir, name), text)
  return 0


if __name__ == "__main__":
  sys.exit(main(sys.argv[1:]))
