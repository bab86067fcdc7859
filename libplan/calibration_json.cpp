#include "libplan/calibration_json.h"

#include <nlohmann/json.hpp>

#include "libplan/json_values.h"

namespace pp::plan {
namespace {

constexpr NumberRange kFactors{.min = 1e-6, .max = 1e6};

LayerCorrection read_correction(ObjectReader& reader) {
  LayerCorrection correction;
  if (reader.has("layer")) correction.layer = reader.text("layer");
  correction.forward = reader.number("forward", kFactors);
  correction.backward = reader.number("backward", kFactors);
  correction.input_gradient = reader.number("input_gradient", kFactors);
  correction.weight_gradient = reader.number("weight_gradient", kFactors);
  return correction;
}

Json to_json(const LayerCorrection& correction) {
  Json json{{"forward", correction.forward},
            {"backward", correction.backward},
            {"input_gradient", correction.input_gradient},
            {"weight_gradient", correction.weight_gradient}};
  if (!correction.layer.empty()) json["layer"] = correction.layer;
  return json;
}

Json to_json(const UpdateCorrection& update) {
  return {{"optimizer", update.optimizer}, {"factor", update.factor}};
}

Json to_json(const MeasuredSpeed& device) {
  return {{"device", number(device.device)}, {"node", device.node}, {"speed", device.speed}};
}

template <class T>
Json all_json(const std::vector<T>& values) {
  Json json = Json::array();
  for (const T& value : values) json.push_back(to_json(value));
  return json;
}

}  // namespace

Calibration read_calibration(ObjectReader& reader) {
  Calibration calibration{reader.texts("reports"), reader.number("least_factor"),
                          reader.number("largest_factor")};
  if (reader.has("layers"))
    reader.objects("layers", [&](ObjectReader& m) { calibration.layers.push_back(read_correction(m)); });
  if (reader.has("loss"))
    reader.object("loss", [&](ObjectReader& m) { calibration.loss = read_correction(m); });
  if (reader.has("updates")) {
    reader.objects("updates", [&](ObjectReader& m) {
      calibration.updates.push_back({m.text("optimizer"), m.number("factor", kFactors)});
    });
  }
  if (reader.has("devices")) {
    reader.objects("devices", [&](ObjectReader& m) {
      calibration.devices.push_back(
          {DeviceId{small_integer(m, "device")}, m.text("node"), m.number("speed", kFactors)});
    });
  }
  return calibration;
}

Json to_json(const Calibration& calibration) {
  Json json{{"reports", calibration.reports},
            {"least_factor", calibration.least},
            {"largest_factor", calibration.largest}};
  if (!calibration.layers.empty()) json["layers"] = all_json(calibration.layers);
  if (calibration.loss) json["loss"] = to_json(*calibration.loss);
  if (!calibration.updates.empty()) json["updates"] = all_json(calibration.updates);
  if (!calibration.devices.empty()) json["devices"] = all_json(calibration.devices);
  return json;
}

}  // namespace pp::plan
