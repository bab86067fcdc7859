#include "tests/lab/fuzz/mutate_json.h"

#include <algorithm>
#include <array>
#include <string>
#include <vector>

#include "tests/lab/fuzz/mutate_text.h"

namespace pp::fuzz {
namespace {

/// All values below `json`, itself included, in document order. Pointers hold until something is changed.
void collect(Json& json, std::vector<Json*>& all) {
  all.push_back(&json);
  if (!json.is_structured()) return;
  for (Json& member : json) collect(member, all);
}

std::vector<Json*> values_of(Json& document) {
  std::vector<Json*> all;
  collect(document, all);
  return all;
}

Json any_value(Random& random, Json& document) {
  const std::vector<Json*> all = values_of(document);
  return *random.pick(all);
}

template <class Keep>
Json* pick_where(Random& random, Json& document, Keep keep) {
  std::vector<Json*> all = values_of(document);
  std::erase_if(all, [&](const Json* json) { return !keep(*json); });
  return all.empty() ? nullptr : random.pick(all);
}

Json* pick_container(Random& random, Json& document) {
  return pick_where(random, document, [](const Json& json) { return json.is_structured() && !json.empty(); });
}

std::string key_at(const Json& object, std::size_t position) {
  return std::next(object.begin(), static_cast<std::ptrdiff_t>(position)).key();
}

void drop(Random& random, Json& container) {
  const std::size_t at = random.below(container.size());
  if (container.is_array()) {
    container.erase(at);
  } else {
    container.erase(key_at(container, at));
  }
}

void repeat(Random& random, Json& container, Json& document) {
  const Json copy = random.one_in(4) ? any_value(random, document)
                                     : *std::next(container.begin(),
                                                  static_cast<std::ptrdiff_t>(random.below(container.size())));
  if (container.is_object()) {
    container[key_at(container, random.below(container.size())) + (random.one_in(2) ? "_s" : "x")] = copy;
    return;
  }
  const std::size_t times = !copy.is_structured() && random.one_in(10) ? 2000 : 1;
  for (std::size_t i = 0; i < times; ++i)
    container.insert(container.begin() + static_cast<std::ptrdiff_t>(random.below(container.size() + 1)), copy);
}

void reorder(Random& random, Json& container) {
  if (!container.is_array()) return;
  std::vector<Json> elements(container.begin(), container.end());
  if (random.one_in(2)) {
    std::swap(random.pick(elements), random.pick(elements));
  } else {
    random.shuffle(elements);
  }
  container = Json(elements);
}

/// A name that some document knows, or text that wants care.
std::string other_text(Random& random, Json& document) {
  static constexpr std::array kNames{
      "gpipe",        "1f1b",      "zb-h1",       "interleaved",  "chimera",
      "pipedream",    "zb-v",      "looped-bfs",  "dapple-pa",    "2bw",
      "custom",       "flush",     "stash",       "two_buffered", "never",
      "always",       "per_stage", "sgd",         "adamw",        "rmsprop",
      "float32",      "float64",   "bfloat16",    "int64",        "cpu",
      "cuda",         "in_place",  "imported",    "relu",         "linear",
      "add",          "concat",    "opaque",      "flatten",      "cross_entropy",
      "mse",          "split",     "round_robin", "image:1",      "\x1b[31mred\x1b[0m",
      "a\tb\nc",      "",          " ",           "%s%n",         "\xc3\xa9\xe2\x82\xac",
      "F0.0 B0.0 U0", "../x",      "sha256:00"};  // no "nan": shown, it would look like a missing number
  if (random.one_in(30)) return std::string(5000, 'n');
  if (random.one_in(2)) {
    if (const Json* text = pick_where(random, document, [](const Json& json) { return json.is_string(); }))
      return text->get<std::string>();
  }
  return random.pick(kNames);
}

/// The value of another type.
Json other_type(Random& random) {
  static const std::array<Json, 8> kValues{Json(nullptr),    Json(true), Json::array(),
                                           Json::object(),   Json(""),   Json(Json::array({0})),
                                           Json({{"a", 1}}), Json(1)};
  return random.pick(kValues);
}

Json nested(Random& random, Json inner) {
  for (std::size_t depth = random.one_in(2) ? 3 : 70; depth > 0; --depth)
    inner = Json::array({std::move(inner)});
  return inner;
}

Json nearby(Random& random, const Json& number) {
  if (number.is_number_float()) {
    static constexpr std::array kFactors{0.5, 2.0, 1e3, 1e-3, 1.0000001};
    return number.get<double>() * random.pick(kFactors);
  }
  const auto value = number.get<std::int64_t>();
  switch (random.below(4)) {
    case 0: return static_cast<std::int64_t>(static_cast<std::uint64_t>(value) + 1);
    case 1: return static_cast<std::int64_t>(static_cast<std::uint64_t>(value) - 1);
    case 2: return static_cast<std::int64_t>(static_cast<std::uint64_t>(value) * 2);
    default: return value / 2;
  }
}

Json extreme(Random& random) {
  const std::string text = extreme_number(random);
  const Json number = Json::parse(text, nullptr, false);
  return number.is_discarded() ? Json(text) : number;
}

void replace_number(Random& random, Json& document, bool gently) {
  Json* number = pick_where(random, document, [](const Json& json) { return json.is_number(); });
  if (number == nullptr) return;
  if (gently || random.one_in(3)) {
    *number = nearby(random, *number);
  } else {
    *number = random.one_in(2) ? Json(random.integer(0, 4)) : extreme(random);
  }
}

void replace_text(Random& random, Json& document) {
  Json* text = pick_where(random, document, [](const Json& json) { return json.is_string(); });
  if (text == nullptr) return;
  std::string changed = other_text(random, document);
  *text = std::move(changed);
}

/// Two values of one type change places.
void exchange(Random& random, Json& document) {
  Json* first = pick_where(random, document, [&](const Json& json) { return &json != &document; });
  if (first == nullptr) return;
  Json* second = pick_where(random, document, [&](const Json& json) {
    return &json != &document && json.type() == first->type() && !json.is_structured();
  });
  if (second == nullptr || first->is_structured()) return;
  std::swap(*first, *second);
}

/// A copy of one value over another, also of another type or size.
void overwrite(Random& random, Json& document) {
  const std::vector<Json*> all = values_of(document);
  const Json copy = *random.pick(all);
  *random.pick(all) = copy;
}

void rename(Random& random, Json& container) {
  if (!container.is_object()) return;
  const std::size_t at = random.below(container.size());
  Json renamed = Json::object();
  for (std::size_t i = 0; i < container.size(); ++i) {
    const std::string key = key_at(container, i);
    renamed[i == at ? key + "x" : key] = container[key];
  }
  container = std::move(renamed);
}

}  // namespace

void mutate_json(Random& random, Json& document) {
  Json* container = pick_container(random, document);
  if (container == nullptr) return;
  std::vector<Json*> all = values_of(document);
  switch (random.below(12)) {
    case 0: return drop(random, *container);
    case 1: return repeat(random, *container, document);
    case 2: return reorder(random, *container);
    case 3: return rename(random, *container);
    case 4: return exchange(random, document);
    case 5: return overwrite(random, document);
    case 6: return replace_text(random, document);
    case 7: *random.pick(all) = other_type(random); return;
    case 8: {
      Json& value = *random.pick(all);
      value = nested(random, value);
      return;
    }
    default: return replace_number(random, document, false);
  }
}

void mutate_json_gently(Random& random, Json& document) {
  switch (random.below(4)) {
    case 0: return exchange(random, document);
    case 1: return replace_text(random, document);
    case 2:
      if (Json* container = pick_container(random, document)) reorder(random, *container);
      return;
    default: return replace_number(random, document, true);
  }
}

}  // namespace pp::fuzz
