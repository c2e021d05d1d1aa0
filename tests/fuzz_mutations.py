"""Changes to valid input files: small, large, and by their structure."""
import copy
import json

# What goes wrong in real files, and what parsers are known to stumble over.
TOKENS = [
    b"", b"\0", b"\n", b"\r", b"\r\n", b"\t", b'"', b"\\", b",", b"[", b"{",
    b"]}", b"[" * 3000, b"null", b"NaN", b"-1", b"1e999", b"9" * 30,
    b"9" * 5000, b"\xff", b"\xc3", b"\xed\xa0\x80", b"\xef\xbb\xbf",
    b"\xff\xfe", "\u2028".encode(), "\u200b".encode(), "e\u0301".encode(),
    "\u0130".encode(), "\U0001f600".encode(), b"\\ud800", b"\\u0000",
    b"[CLS]", b"##", b" " * 40, b"x" * 300, b"true", b"0", b"label", b"\x1c",
    b"\x85", "\u3000".encode()]

VALUES = [
    None, True, False, 0, 1, -1, 2 ** 70, 1.5, float("nan"), float("inf"), "",
    " ", "the", "\ud800", "\0", "\u200b", [], {}, [[]], [None], {"text": "the"},
    {"text": None, "answer_start": 0}, [{"text": "the", "answer_start": 99}],
    "x" * 1000]


def mutate(name, sample, rng):
  """Returns a changed copy of a sample of a format; now and then the same."""
  content = sample
  if name == "json" and rng.random() < 0.6:
    content = _mutate_json(content, rng)
    if rng.random() < 0.7:
      return content
  for _ in range(rng.choice([0, 1, 1, 1, 2, 3, 8])):
    content = rng.choice(_CHANGES)(content, rng)
  if rng.random() < 0.02:
    content = content.decode("utf-8", "ignore").encode(
        rng.choice(["utf-16", "utf-16-le", "utf-32", "utf-8-sig", "latin-1"]),
        "replace")
  return content


def _place(content, rng):
  return rng.randint(0, len(content))


def _part(content, rng):
  first = _place(content, rng)
  return first, min(len(content), first + rng.choice([1, 1, 2, 8, 64, 1000]))


def _flip_bit(content, rng):
  if not content:
    return content
  place = rng.randrange(len(content))
  changed = bytes([content[place] ^ (1 << rng.randrange(8))])
  return content[:place] + changed + content[place + 1:]


def _set_byte(content, rng):
  if not content:
    return content
  place = rng.randrange(len(content))
  return content[:place] + bytes([rng.randrange(256)]) + content[place + 1:]


def _insert_token(content, rng):
  place = _place(content, rng)
  return content[:place] + rng.choice(TOKENS) + content[place:]


def _cut_end(content, rng):
  return content[:_place(content, rng)]


def _cut_part(content, rng):
  first, end = _part(content, rng)
  return content[:first] + content[end:]


def _repeat_part(content, rng):
  first, end = _part(content, rng)
  place = _place(content, rng)
  return content[:place] + content[first:end] + content[place:]


def _change_line(content, rng):
  lines = content.split(b"\n")
  place = rng.randrange(len(lines))
  change = rng.randrange(4)
  if change == 0:
    del lines[place]
  elif change == 1:
    lines.insert(place, rng.choice(lines))
  elif change == 2:
    lines[place] = rng.choice(TOKENS)
  else:
    rng.shuffle(lines)
  return b"\n".join(lines)


def _replace_token(content, rng):
  old, new = rng.choice(TOKENS[2:12]), rng.choice(TOKENS)
  return content.replace(old, new, rng.choice([1, 3, 100]))


_CHANGES = [_flip_bit, _set_byte, _insert_token, _cut_end, _cut_part,
            _repeat_part, _change_line, _replace_token]


def _mutate_json(content, rng):
  value = json.loads(content.decode("utf-8"))
  for _ in range(rng.choice([1, 1, 2, 4])):
    nodes = list(_iterate_nodes(value))
    if not nodes:
      break
    parent, key = rng.choice(nodes)
    change = rng.randrange(5)
    if change == 0:
      del parent[key]
    elif change == 1:
      parent[key] = copy.deepcopy(rng.choice(VALUES))
    elif change == 2:  # one of another kind
      other, other_key = rng.choice(nodes)
      if other_key in other if isinstance(other, dict) else True:
        parent[key] = copy.deepcopy(_get(other, other_key))
    elif change == 3 and isinstance(parent, list):
      parent.insert(key, copy.deepcopy(rng.choice(parent)))
    elif isinstance(parent[key], str):
      parent[key] = _mutate_text(parent[key], rng)
    elif isinstance(parent[key], int):
      parent[key] += rng.choice([-50, -1, 1, 3, 50])
  return json.dumps(value).encode("ascii")


def _get(parent, key):
  try:
    return parent[key]
  except (KeyError, IndexError):
    return None


def _mutate_text(text, rng):
  place = rng.randint(0, len(text))
  token = rng.choice(TOKENS).decode("utf-8", "replace")
  return text[:place] + token + text[place + rng.choice([0, 0, 1, 5]):]


def _iterate_nodes(value):
  """Yields (container, key) of each value within."""
  items = (value.items() if isinstance(value, dict) else
           enumerate(value) if isinstance(value, list) else ())
  for key, child in list(items):
    yield value, key
    yield from _iterate_nodes(child)
