// The optimizers, a row each: what they can be given, what they keep, what others call them. Torch-free. Their
// arithmetic has a row in model/optimizer_updates.cpp.
#pragma once

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "libprofile/core/enum_names.h"

namespace pp {

enum class OptimizerName { sgd, adam, adamw, rmsprop, adagrad };

/// A number that the arithmetic of some optimizers takes; learning rate and weight decay all of them take.
struct OptimizerSetting {
  enum class Range { below_one, positive, not_negative, flag };
  std::string_view name;  ///< in documents; `lr_decay` is the option `--lr-decay`
  Range range = Range::below_one;
  double fallback = 0;          ///< torch.optim's, but for sgd's momentum
  std::string_view help = {};   ///< a few words, if the name does not say all
  std::string_view needs = {};  ///< of a flag: the setting that must be above 0
};

/// State: a tensor per weight, named as in torch.optim; `step` is one number per weight.
struct OptimizerSlotRow {
  std::string_view name;
  bool is_direction = false;   ///< says which way the weights go
  std::string_view with = {};  ///< kept where this setting is above 0; empty: always
};

struct OptimizerRow {
  OptimizerName name;
  std::string_view text;
  std::span<const OptimizerSetting> settings;
  std::span<const OptimizerSlotRow> slots;
  OptimizerName like;  ///< of those that pp-profile measures, sgd and adamw, the one with the nearest update
  std::string_view torch_class;
  std::string_view megatron = {};    ///< Megatron-LM's `--optimizer`; empty: it has none such
  std::string_view torchtitan = {};  ///< the expression in TorchTitan's configuration; empty: it has none such
};

namespace detail {

using enum OptimizerSetting::Range;
inline constexpr OptimizerSetting kSgdSettings[]{{"momentum", below_one, 0.9},
                                                 {"nesterov", flag, 0, "Nesterov's momentum", "momentum"}};
inline constexpr OptimizerSetting kAdamSettings[]{
    {"beta1", below_one, 0.9}, {"beta2", below_one, 0.999}, {"epsilon", positive, 1e-8}};
inline constexpr OptimizerSetting kRmspropSettings[]{{"momentum", below_one, 0},
                                                     {"alpha", below_one, 0.99, "of the mean of squares"},
                                                     {"epsilon", positive, 1e-8}};
inline constexpr OptimizerSetting kAdagradSettings[]{
    {"epsilon", positive, 1e-10}, {"lr_decay", not_negative, 0, "the rate is divided by 1 + decay * step"}};

/// sgd without momentum has no state: the fused kernel demands it.
inline constexpr OptimizerSlotRow kSgdSlots[]{{"momentum_buffer", true, "momentum"}};
inline constexpr OptimizerSlotRow kAdamSlots[]{{"exp_avg", true}, {"exp_avg_sq"}, {"step"}};
inline constexpr OptimizerSlotRow kRmspropSlots[]{{"square_avg"}, {"momentum_buffer", true, "momentum"}};
inline constexpr OptimizerSlotRow kAdagradSlots[]{{"sum"}, {"step"}};

}  // namespace detail

/// Adagrad's kernel moves as many bytes as that of sgd with momentum; rmsprop has no kernel of its own and
/// makes more passes. Megatron's Adam decouples the decay, as AdamW does; TorchTitan's Adam is AdamW without
/// decay.
inline constexpr std::array kOptimizerRows{
    OptimizerRow{OptimizerName::sgd, "sgd", detail::kSgdSettings, detail::kSgdSlots, OptimizerName::sgd, "SGD",
                 "sgd"},
    OptimizerRow{OptimizerName::adam, "adam", detail::kAdamSettings, detail::kAdamSlots, OptimizerName::adamw,
                 "Adam", "adam", "default_adamw(lr=3e-4, weight_decay=0.0)"},
    OptimizerRow{OptimizerName::adamw, "adamw", detail::kAdamSettings, detail::kAdamSlots, OptimizerName::adamw,
                 "AdamW", "adam", "default_adamw(lr=3e-4)"},
    OptimizerRow{OptimizerName::rmsprop, "rmsprop", detail::kRmspropSettings, detail::kRmspropSlots,
                 OptimizerName::adamw, "RMSprop"},
    OptimizerRow{OptimizerName::adagrad, "adagrad", detail::kAdagradSettings, detail::kAdagradSlots,
                 OptimizerName::sgd, "Adagrad"}};

template <>
struct EnumNames<OptimizerName> {
  static constexpr std::array table = [] {
    std::array<std::pair<OptimizerName, std::string_view>, kOptimizerRows.size()> names{};
    for (std::size_t i = 0; i < names.size(); ++i) names[i] = {kOptimizerRows[i].name, kOptimizerRows[i].text};
    return names;
  }();
};

constexpr const OptimizerRow& row_of(OptimizerName name) {
  return *std::ranges::find(kOptimizerRows, name, &OptimizerRow::name);
}

/// `--lr-decay`
std::string option_of(std::string_view setting);
/// For --help, of all optimizers that have it: `adam, adamw: 0.9 unless given`.
std::string help_of(std::string_view setting);

/// By name; what is unset, or a flag of 0, is not given.
using OptimizerSettings = std::map<std::string, std::optional<double>, std::less<>>;

/// A value for every setting of this optimizer: what is given, else the default. Throws pp::Error (usage) for a
/// value out of range, and for one that is given to an optimizer which does not have that setting.
OptimizerSettings settings_of(OptimizerName name, const OptimizerSettings& given);

/// What it keeps with these settings, as settings_of() takes them.
std::vector<OptimizerSlotRow> slots_of(OptimizerName name, const OptimizerSettings& given = {});
/// Bytes of state per byte of parameters: the slots but `step`.
double state_ratio_of(OptimizerName name, const OptimizerSettings& given = {});
/// Whether its state says which way the weights go.
bool has_direction(OptimizerName name, const OptimizerSettings& given);

}  // namespace pp
