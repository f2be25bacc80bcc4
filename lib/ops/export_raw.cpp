// SPDX-License-Identifier: Apache-2.0
// The bytes of one tensor and nothing else.
#include "ops/export_layout.hpp"

#include <ckpt/error.hpp>

namespace ckpt::ops {

ExportLayout lay_out_raw(const std::vector<ExportItem>& /*items*/) { return {{.literal = {}, .item = 0}}; }

void refuse_dtype(const ExportItem& item, std::string_view format, std::string_view hint) {
  throw Error(Errc::unsupported, "tensor '" + item.tensor.name + "' of '" + item.path + "' is " +
                                     std::string(name_of(item.tensor.dtype)) + ", which " + std::string(format) +
                                     " has no name for")
      .with_hint(std::string(hint));
}

}  // namespace ckpt::ops
