#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "base/errors.h"
#include "base/half.h"
#include "build/encode.h"
#include "check.h"
#include "gather/gather.h"
#include "scratch.h"
#include "storage/column.h"

using namespace gz;
using namespace gz::test;

TEST(decoders_of_this_machine_agree_with_the_portable_ones) {
  std::vector<std::byte> items(2 * 65536 + 1);
  for (std::size_t i = 0; i < 65536; ++i) {
    const auto half = static_cast<std::uint16_t>(i);
    std::memcpy(items.data() + 1 + 2 * i, &half, 2);  // unaligned
  }
  std::vector<float> scale, zero_point;
  for (int i = 0; i < 65536; ++i) {
    scale.push_back(std::ldexp(1.0F + static_cast<float>(i % 7) / 9, i % 40 - 20));
    zero_point.push_back(std::ldexp(static_cast<float>(i % 11 - 5), i % 30 - 15));
  }
  for (const auto& [encoding, name, item_bytes, number, has_scales, kernels] : kEncodings) {
    for (const std::int64_t count : {std::int64_t{65536}, std::int64_t{13}, std::int64_t{0}}) {
      std::vector<std::byte> fast(4 * 65536 + 1), plain(4 * 65536 + 1);
      for (const auto& [machine, out] :
           {std::pair{Machine::kThis, &fast}, {Machine::kAny, &plain}}) {
        kernels(machine).decode(items.data() + 1, count, scale.data(), zero_point.data(),
                                out->data() + 1);
      }
      CHECK(fast == plain);
    }
  }
}

TEST(halves_survive_the_way_to_float32_and_back) {
  bool same = true;
  for (std::uint32_t i = 0; i < 65536; ++i) {
    const auto half = static_cast<std::uint16_t>(i);
    if (const float value = from_float16(half); !std::isnan(value)) {
      same = same && to_float16(value) == half;
    }
    if (const float value = from_bfloat16(half); !std::isnan(value)) {
      same = same && to_bfloat16(value) == half;
    }
  }
  CHECK(same);
  CHECK(from_float16(to_float16(1e30F)) == 65504 && from_float16(to_float16(-1e30F)) == -65504);
  CHECK(std::isnan(from_float16(to_float16(std::numeric_limits<float>::quiet_NaN()))));
  CHECK(std::isinf(from_bfloat16(to_bfloat16(std::numeric_limits<float>::infinity()))));
}

TEST(an_encoded_column_round_trip) {
  const Scratch dir;
  constexpr std::int64_t kRows = 500, kItems = 21;
  std::vector<float> values(kRows * kItems);
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = std::sin(static_cast<float>(i));
  RowEncoder encoder(Encoding::kInt8, kItems);
  CHECK(encoder.profile(values.data(), kRows, 4) == -1);
  encoder.fit();
  std::vector<std::byte> codes(values.size());
  encoder.encode(values.data(), kRows, codes.data(), 4);
  ColumnWriter writer(dir / "x.gd", *find_dtype("int8"), {kRows, kItems}, Encoding::kInt8,
                      encoder.scale(), encoder.zero_point());
  writer.append(codes.data(), codes.size());
  writer.finish();

  const auto column = Column::open(dir / "x.gd");
  CHECK(column->encoding() == Encoding::kInt8);
  const auto map = column->map(MapMode::kReadOnly);
  const RowTable table{.data = map->data() + column->data_offset(),
                       .num_rows = kRows,
                       .row_bytes = kItems * 4,
                       .row_stride = static_cast<std::int64_t>(column->row_stride()),
                       .encoding = &kernels(Encoding::kInt8),
                       .scale = column->scale().data(),
                       .zero_point = column->zero_point().data()};
  std::vector<std::int64_t> index;
  for (std::int64_t row = kRows; row-- > 0;) index.push_back(row);
  std::vector<float> out(values.size());
  gather_rows(table, index, reinterpret_cast<std::byte*>(out.data()), 3);
  bool near = true;
  for (std::int64_t row = 0; row < kRows; ++row) {
    for (std::int64_t i = 0; i < kItems; ++i) {
      const float found = out[static_cast<std::size_t>((kRows - 1 - row) * kItems + i)];
      const float wanted = values[static_cast<std::size_t>(row * kItems + i)];
      near = near && std::fabs(found - wanted) <= 0.0041F;
    }
  }
  CHECK(near);
}

TEST(a_writer_wants_a_scale_for_every_item) {
  const Scratch dir;
  CHECK_THROWS(
      std::invalid_argument, "found 2 scales and 3 zero points, expected 3",
      ColumnWriter(dir / "a.gd", *find_dtype("int8"), {5, 3}, Encoding::kInt8, {1, 1}, {0, 0, 0}));
  CHECK_THROWS(FormatError, "encoding: found 1 of bfloat16, expected float16",
               ColumnWriter(dir / "c.gd", *find_dtype("bfloat16"), {5, 3}, Encoding::kFloat16));
  CHECK_THROWS(FormatError, "encoding: found 2 of uint8, expected int8",
               ColumnWriter(dir / "b.gd", *find_dtype("uint8"), {5, 3}, Encoding::kInt8));
}

TEST(adopted_rows_must_lie_in_the_file) {
  const Scratch dir;
  const std::string path = dir / "raw";
  {
    File file = File::create(path);
    const std::vector<char> zeros(100);
    file.write_at(zeros.data(), zeros.size(), 0);
  }
  const DType& dtype = *find_dtype("float32");
  const std::uint64_t shape[] = {5, 3};
  const auto adopt = [&](Placement placement) {
    return Column::adopt(path, dtype, shape, placement);
  };
  CHECK(adopt({100, 40, 12})->data_bytes() == 60);
  CHECK(adopt({100, 1, 16})->row_stride() == 16);
  CHECK_THROWS(FormatError, "file size: found 100 bytes, expected 99 bytes", adopt({99, 0, 12}));
  CHECK_THROWS(FormatError, "expected 101 or more", adopt({100, 41, 12}));
  CHECK_THROWS(FormatError, "row_stride: found 8", adopt({100, 0, 8}));
  CHECK_THROWS(FormatError, "below 2^63", adopt({100, UINT64_MAX - 3, 12}));
  CHECK_THROWS(FormatError, "below 2^63", adopt({100, 0, UINT64_MAX - 3}));
}
