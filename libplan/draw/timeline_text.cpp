#include "libplan/draw/timeline_text.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <cmath>
#include <optional>

#include "libplan/draw/svg_labels.h"
#include "libplan/draw/timeline_rows.h"
#include "libprofile/core/index.h"

namespace pp::plan {
namespace {

constexpr int kLeastCells = 8;
constexpr int kCellsPerTick = 7;
constexpr int kRight = 9;           // `|1.31 GiB`
constexpr int kWidthForWords = 60;  // below it a row is named by its number alone
constexpr const char* kIdle = "·";
constexpr const char* kReset = "\033[0m";

std::string padded_left(const std::string& text, std::size_t width) {
  return std::string(width - std::min(width, text.size()), ' ') + text;
}

/// What one cell of a row shows.
struct Cell {
  std::optional<OpKind> kind;   ///< none: idle
  const OpEvent* op = nullptr;  ///< null: operations too short to tell apart
};

/// Sums what happens in each cell; the kind with the most time wins, idle time included.
class CellRow {
 public:
  CellRow(const TimelineRow& row, Seconds length, int count) : shares_(at(count)) {
    if (length.count() <= 0) return;
    const double per_cell = length.count() / count;
    for (const OpEvent* op : row.ops) add(*op, op->start.count() / per_cell, op->end.count() / per_cell);
  }

  std::vector<Cell> cells() const {
    std::vector<Cell> cells;
    for (const Shares& shares : shares_) {
      const auto most = std::ranges::max_element(shares.by_kind, {}, &KindShare::total);
      double busy = 0;
      for (const KindShare& kind : shares.by_kind) busy += kind.total;
      if (most->total <= 1 - busy) {
        cells.emplace_back();
      } else {
        const bool alone = most->longest_width >= 0.5;
        cells.push_back({most->longest->op.kind, alone ? most->longest : nullptr});
      }
    }
    return cells;
  }

 private:
  struct KindShare {
    double total = 0;  ///< of the cell
    double largest = 0;
    double longest_width = 0;  ///< in cells, of the operation with the largest share
    const OpEvent* longest = nullptr;
  };
  struct Shares {
    std::array<KindShare, kOpStyles.size()> by_kind;
  };

  void add(const OpEvent& op, double begin, double end) {
    const int last = static_cast<int>(shares_.size()) - 1;
    for (int c = std::min(static_cast<int>(begin), last); c <= last && c < end; ++c) {
      const double share = std::min(end, c + 1.0) - std::max(begin, static_cast<double>(c));
      KindShare& kind = shares_[at(c)].by_kind[at(op.op.kind)];
      kind.total += share;
      if (share <= kind.largest) continue;
      kind.largest = share;
      kind.longest = &op;
      kind.longest_width = end - begin;
    }
  }

  std::vector<Shares> shares_;
};

class TextTimeline {
 public:
  TextTimeline(const SimulationResult& result, std::span<const MemoryCurve> memory, const TextOptions& options)
      : result_(result), memory_(memory), color_(options.color), rows_(timeline_rows(result)) {
    const std::string last = std::to_string(std::max<std::size_t>(rows_.size(), 1) - 1);
    name_ = options.width < kWidthForWords ? "" : "worker ";
    left_ = name_.size() + std::max<std::size_t>(last.size(), 2);
    cells_ = std::max(kLeastCells, options.width - static_cast<int>(left_) - 2 - kRight);
    width_ = left_ + 2 + at(cells_ + kRight);
  }

  std::string text() {
    axis("idle");
    for (std::size_t w = 0; w < rows_.size(); ++w) {
      begin_row(w);
      draw(rows_[w]);
      end_row(percent_text(idle_share(rows_[w], result_.makespan)));
    }
    legend();
    if (memory_.size() == rows_.size() && highest(memory_) > Bytes(0)) draw_memory();
    return text_;
  }

 private:
  /// A bar at each tick's column and its number behind it, as far as the heading of the right column leaves
  /// room.
  void axis(const std::string& right) {
    const TimeAxis axis = time_axis(result_.makespan, cells_ / kCellsPerTick + 1);
    std::string line(at(cells_ + kRight), ' ');
    line.replace(line.size() - right.size(), right.size(), right);
    std::size_t free = 0;
    for (int tick = 0; tick <= axis.last; ++tick) {
      const double place = result_.makespan.count() > 0 ? axis.time(tick) / result_.makespan * cells_ : 0;
      const std::size_t column = static_cast<std::size_t>(place + 1e-6);
      const std::string label = "|" + axis.label(tick);
      if (column < free || column + label.size() >= line.size() - right.size()) continue;
      line.replace(column, label.size(), label);
      free = column + label.size() + 1;
    }
    text_ += padded_left(std::string(axis.unit), left_) + "  " + line + '\n';
  }

  void begin_row(std::size_t worker) { text_ += padded_left(name_ + std::to_string(worker), left_) + " |"; }
  void end_row(const std::string& right) { text_ += "|" + padded_left(right, kRight - 1) + '\n'; }

  void draw(const TimelineRow& row) {
    const std::vector<Cell> cells = CellRow(row, result_.makespan, cells_).cells();
    for (std::size_t c = 0; c < cells.size();) {
      std::size_t end = c + 1;
      while (end < cells.size() && cells[end].op == cells[c].op && cells[end].kind == cells[c].kind) ++end;
      draw_run(row, cells[c], end - c);
      c = end;
    }
  }

  void draw_run(const TimelineRow& row, const Cell& cell, std::size_t count) {
    if (!cell.kind) {
      if (color_) text_ += "\033[2m";
      for (std::size_t i = 0; i < count; ++i) text_ += kIdle;
      if (color_) text_ += kReset;
      return;
    }
    const OpStyle& style = style_of(*cell.kind);
    const bool second = cell.op != nullptr && cell.op->op.micro_batch % 2 == 1;
    if (cell.op == nullptr) {
      joined_ |= has_micro_batch(*cell.kind);
      text_ += painted(std::string(count, name_of(*cell.kind).front()), style, second);
    } else {
      std::string label = label_of(row, *cell.op, count);
      label.resize(count, color_ ? ' ' : style.fill);
      text_ += painted(label, style, second);
    }
  }

  /// The longest text that fits. Judged by the operation's length, not by the cells it won, so that equal
  /// operations look alike.
  std::string label_of(const TimelineRow& row, const OpEvent& event, std::size_t cells) {
    const auto length = std::llround((event.end - event.start) / result_.makespan * cells_);
    const std::size_t width = std::min(cells, at(std::max(length, 1LL)));
    std::string label = fitting_label(event.op, row.stages.size() > 1, width);
    if (row.chunk(event.op.stage) % 2 == 1) {
      for (char& c : label) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    }
    return label;
  }

  /// `F2.13`, `F13`, then `13` and `3` where digits alone say the kind, else `B3` and `B`.
  std::string fitting_label(const Op& op, bool with_stage, std::size_t width) {
    const std::string letters(name_of(op.kind));
    const std::string number = has_micro_batch(op.kind) ? std::to_string(op.micro_batch) : "";
    const std::string whole = with_stage ? to_text(op) : letters + number;
    if (whole.size() <= width) return whole;
    if (letters.size() + number.size() <= width) return letters + number;
    if (number.empty()) return letters.substr(0, width);

    const std::string digit = number.substr(number.size() - 1);
    const bool alone = color_ || op.kind == OpKind::forward;
    digits_ |= alone;
    if (alone && number.size() <= width) return number;
    cut_ |= number.size() > 1 && (alone || width > 1);
    if (alone) return digit;
    return width > 1 ? letters + digit : letters;
  }

  std::string painted(const std::string& label, const OpStyle& style, bool second) const {
    if (!color_) return label;
    const int background = second ? style.ansi_second : style.ansi;
    return "\033[38;5;16;48;5;" + std::to_string(background) + "m" + label + kReset;
  }

  struct Piece {
    std::string text;
    std::size_t columns = 0;
  };

  void legend() {
    std::vector<Piece> pieces;
    for (const OpKind kind : kinds_of(result_)) {
      const OpStyle& style = style_of(kind);
      std::string sample(name_of(kind));
      sample.resize(3, color_ ? ' ' : style.fill);
      const std::string name = " " + std::string(style.name);
      pieces.push_back({painted(sample, style, false) + name, sample.size() + name.size()});
    }
    pieces.push_back({std::string(kIdle) + " idle", 6});
    flow(pieces, "  ");
    if (digits_) note(color_ ? "digits alone: the micro-batch" : "digits alone: a forward of that micro-batch");
    if (cut_) note("of micro-batches from 10 on, short operations show the last digit");
    if (joined_) note("where operations are too short: the letter of the kind that takes most of a column");
    if (most_chunks(rows_) > 1) note("small letters: every second stage of a worker");
    const auto takes_no_time = [](const OpEvent& event) { return event.start == event.end; };
    if (const auto count = std::ranges::count_if(result_.ops, takes_no_time)) {
      note("without length, not drawn: " + std::to_string(count) + " operations");
    }
  }

  void note(const std::string& what) {
    std::vector<Piece> words;
    for (std::size_t begin = 0; begin < what.size();) {
      const std::size_t end = std::min(what.find(' ', begin), what.size());
      words.push_back({what.substr(begin, end - begin), end - begin});
      begin = end + 1;
    }
    flow(words, " ");
  }

  /// One after the other below the rows, in as many lines as the width asks for.
  void flow(const std::vector<Piece>& pieces, std::string_view gap) {
    const std::size_t indent = left_ + 2;
    std::size_t column = 0;
    for (const Piece& piece : pieces) {
      if (column > 0 && column + gap.size() + piece.columns > width_) {
        text_ += '\n';
        column = 0;
      }
      text_ += column == 0 ? std::string(indent, ' ') : std::string(gap);
      text_ += piece.text;
      column += (column == 0 ? indent : gap.size()) + piece.columns;
    }
    text_ += '\n';
  }

  void draw_memory() {
    static constexpr std::array<const char*, 9> kLevels{" ", "▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
    const Bytes full = highest(memory_);
    text_ += '\n';
    note("memory, full height " + to_text(full));
    for (std::size_t w = 0; w < memory_.size(); ++w) {
      begin_row(w);
      for (const MemoryParts& held : sample(memory_[w], result_.makespan, cells_)) {
        const double share = static_cast<double>(total(held).value) / static_cast<double>(full.value);
        text_ += kLevels[static_cast<std::size_t>(std::ceil(8 * share))];
      }
      end_row(to_text(highest(memory_.subspan(w, 1))));
    }
  }

  const SimulationResult& result_;
  const std::span<const MemoryCurve> memory_;
  const bool color_;
  const std::vector<TimelineRow> rows_;
  bool digits_ = false;  ///< what the legend has to explain
  bool cut_ = false;
  bool joined_ = false;
  std::string name_;  ///< of a row, before its number
  std::size_t left_ = 0;
  int cells_ = 0;
  std::size_t width_ = 0;  ///< in all
  std::string text_;
};

}  // namespace

std::string timeline_text(const SimulationResult& result, std::span<const MemoryCurve> memory,
                          const TextOptions& options) {
  return TextTimeline(result, memory, options).text();
}

}  // namespace pp::plan
