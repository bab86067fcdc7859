// The field lists of all documents, for their JSON Schemas.
#pragma once

#include <vector>

#include "libprofile/core/schema/document_schema.h"
#include "libprofile/estimate/device_spec.h"
#include "librun/checkpoint/manifest.h"
#include "librun/infer/report.h"
#include "librun/report/metrics.h"
#include "librun/report/report.h"

namespace pp {

inline std::vector<Keys> document_keys() {
  std::vector<Keys> keys = run::metrics_keys();
  keys.insert(keys.end(), {cluster_keys(), trainer_keys(), profile_keys(), profile::device_spec_keys(),
                           plan::plan_keys(), run::inference_keys(), run::manifest_keys(), run::report_keys()});
  return keys;
}

}  // namespace pp
