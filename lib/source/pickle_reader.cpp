// SPDX-License-Identifier: Apache-2.0
// The interpreter: one switch over all opcodes of protocols 0 to 5. What an opcode would call or import becomes a
// node. Faults are thrown to read_pickle(), which turns them into a status.
#include "source/pickle_reader.hpp"

#include "source/pickle_builder.hpp"
#include "source/pickle_literals.hpp"

#include <bit>
#include <utility>
#include <vector>

namespace ckpt::source {

class PickleReader {
 public:
  explicit PickleReader(ByteView data) : data_(data), builder_(data) { memo_.reserve(data.size() / 8); }

  [[nodiscard]] std::size_t position() const { return at_; }

  Pickle run() {
    while (step(number<std::uint8_t>())) {
    }
    return builder_.finish(pop());
  }

 private:
  [[noreturn]] static void fault(PickleStatus status, const char* what) { throw PickleFault{status, what}; }
  [[noreturn]] static void altered(const char* what) { fault(PickleStatus::altered, what); }

  template <FixedWidth T>
  T number() {
    if (data_.size() - at_ < sizeof(T)) fault(PickleStatus::cut_short, "it ends inside a value");
    const T value = load_le<T>(data_.data() + at_);
    at_ += sizeof(T);
    return value;
  }

  /// Moves over `size` bytes and gives where they start.
  std::size_t skip(std::uint64_t size) {
    if (size > data_.size() - at_) fault(PickleStatus::cut_short, "it ends inside a value");
    const std::size_t start = at_;
    at_ += static_cast<std::size_t>(size);
    return start;
  }

  /// An operand that ends with a newline, without it.
  std::string_view line() {
    const std::string_view rest = as_text(data_.subspan(at_));
    const std::size_t end = rest.find('\n');
    if (end == std::string_view::npos) fault(PickleStatus::cut_short, "it ends inside a line");
    at_ += end + 1;
    return rest.substr(0, end);
  }

  NodeId view_of(NodeKind kind, std::string_view text) {
    return builder_.view(kind, static_cast<std::size_t>(text.data() - as_text(data_).data()), text.size());
  }

  void push(NodeId id) {
    if (stack_.size() >= max_pickle_nodes) fault(PickleStatus::refused, "the stack is too deep");
    stack_.push_back(id);
  }

  /// Nothing below the newest mark can be reached.
  [[nodiscard]] std::size_t floor() const { return marks_.empty() ? 0 : marks_.back(); }

  NodeId top() const {
    if (stack_.size() <= floor()) altered("a value is missing on the stack");
    return stack_.back();
  }

  NodeId pop() {
    const NodeId id = top();
    stack_.pop_back();
    return id;
  }

  void push_view(NodeKind kind, std::uint64_t size) {
    const std::size_t start = skip(size);
    push(builder_.view(kind, start, static_cast<std::size_t>(size)));
  }

  void push_tuple(std::size_t size) {
    if (stack_.size() - floor() < size) altered("a value is missing on the stack");
    const NodeId id = builder_.tuple(std::span(stack_).last(size));
    stack_.resize(stack_.size() - size);
    push(id);
  }

  /// The values above the newest mark; drop_mark() takes them off.
  std::span<const NodeId> marked() const {
    if (marks_.empty()) altered("a mark is missing");
    return std::span(stack_).subspan(marks_.back());
  }

  void drop_mark() {
    stack_.resize(marks_.back());
    marks_.pop_back();
  }

  void remember(std::uint64_t index) {
    // A real pickler numbers its memo from zero up, so an index beyond the bytes read so far is a fake.
    if (index > at_) fault(PickleStatus::refused, "the memo is too sparse");
    if (index == memo_.size()) {
      memo_.push_back(top());
      return;
    }
    if (index > memo_.size()) memo_.resize(static_cast<std::size_t>(index) + 1, no_node);
    memo_[static_cast<std::size_t>(index)] = top();
  }

  void recall(std::uint64_t index) {
    if (index >= memo_.size() || memo_[static_cast<std::size_t>(index)] == no_node) altered("a memo entry is missing");
    push(memo_[static_cast<std::size_t>(index)]);
  }

  std::uint64_t memo_index() {
    const auto value = decimal(line());
    if (!value || *value < 0) altered("a memo index is no number");
    return static_cast<std::uint64_t>(*value);
  }

  void push_decimal(std::string_view text) {
    if (text == "00" || text == "01") return push(builder_.boolean(text == "01"));
    if (!text.empty() && text.back() == 'L') text.remove_suffix(1);
    if (const auto value = decimal(text)) return push(builder_.integer(*value));
    const auto bytes = big_decimal(text);
    if (!bytes) altered("an integer is no number");
    push(builder_.owned(NodeKind::big_integer, *bytes));
  }

  void push_long(std::uint64_t size) {
    const std::size_t start = skip(size);
    if (size > 8) return push(builder_.view(NodeKind::big_integer, start, static_cast<std::size_t>(size)));
    std::uint64_t value = 0;
    for (std::size_t i = 0; i < size; ++i) value |= std::to_integer<std::uint64_t>(data_[start + i]) << (8 * i);
    const bool negative = size > 0 && size < 8 && (value >> (8 * size - 1)) != 0;
    if (negative) value |= ~std::uint64_t{0} << (8 * size);
    push(builder_.integer(static_cast<std::int64_t>(value)));
  }

  void push_literal(std::optional<std::string> decoded, NodeKind kind) {
    if (!decoded) altered("a text is malformed");
    push(builder_.owned(kind, *decoded));
  }

  void apply(NodeId callee, NodeId args) { push(builder_.object(callee, args)); }

  void append_marked_pairs(NodeId to, std::span<const NodeId> values) {
    if (values.size() % 2 != 0) altered("a key without a value");
    for (std::size_t i = 0; i < values.size(); i += 2) builder_.append(to, values[i], values[i + 1]);
  }

  /// The container below the newest mark.
  NodeId below_mark() const {
    if (marks_.empty() || marks_.back() == 0) altered("a container is missing on the stack");
    if (marks_.size() > 1 && marks_.back() == marks_[marks_.size() - 2]) altered("a container is missing on the stack");
    return stack_[marks_.back() - 1];
  }

  void push_container_of_marked(NodeKind kind) {
    const NodeId id = builder_.container(kind);
    if (kind == NodeKind::dict) {
      append_marked_pairs(id, marked());
    } else {
      for (const NodeId value : marked()) builder_.append(id, no_node, value);
    }
    drop_mark();
    push(id);
  }

  void append_marked() {
    const NodeId to = below_mark();
    for (const NodeId value : marked()) builder_.append(to, no_node, value);
    drop_mark();
  }

  bool step(std::uint8_t opcode);

  ByteView data_;
  std::size_t at_ = 0;
  PickleBuilder builder_;
  HugeTable<NodeId> stack_;
  std::vector<std::size_t> marks_;
  HugeTable<NodeId> memo_;
};

// One case an opcode, in the order of the protocols that brought them; false after STOP.
bool PickleReader::step(std::uint8_t opcode) {
  switch (opcode) {
    // Protocol 0.
    case '(':
      if (marks_.size() >= max_pickle_marks) fault(PickleStatus::refused, "containers are nested too deeply");
      marks_.push_back(stack_.size());
      return true;
    case '.': return false;
    case '0':
      if (!marks_.empty() && stack_.size() == marks_.back()) {
        marks_.pop_back();
      } else {
        pop();
      }
      return true;
    case '2': push(top()); return true;
    case 'F': {
      const auto value = decimal_real(line());
      if (!value) altered("a real is no number");
      push(builder_.real(*value));
      return true;
    }
    case 'I':
    case 'L': push_decimal(line()); return true;
    case 'N': push(builder_.none()); return true;
    case 'P': push(builder_.persistent(view_of(NodeKind::text, line()))); return true;
    case 'R': {
      const NodeId args = pop();
      apply(pop(), args);
      return true;
    }
    case 'S': push_literal(unquote(line()), NodeKind::text); return true;
    case 'V': push_literal(decode_raw_unicode(line()), NodeKind::text); return true;
    case 'a': {
      const NodeId value = pop();
      builder_.append(top(), no_node, value);
      return true;
    }
    case 'b': {
      const NodeId state = pop();
      builder_.set_state(top(), state);
      return true;
    }
    case 'c': {
      const NodeId module = view_of(NodeKind::text, line());
      push(builder_.global(module, view_of(NodeKind::text, line())));
      return true;
    }
    case 'd': push_container_of_marked(NodeKind::dict); return true;
    case 'l': push_container_of_marked(NodeKind::list); return true;
    case 't': {
      const NodeId id = builder_.tuple(marked());
      drop_mark();
      push(id);
      return true;
    }
    case 'g': recall(memo_index()); return true;
    case 'p': remember(memo_index()); return true;
    case 'i': {
      const NodeId module = view_of(NodeKind::text, line());
      const NodeId callee = builder_.global(module, view_of(NodeKind::text, line()));
      const NodeId args = builder_.tuple(marked());
      drop_mark();
      apply(callee, args);
      return true;
    }
    case 's': {
      const NodeId value = pop();
      const NodeId key = pop();
      builder_.append(top(), key, value);
      return true;
    }

    // Protocol 1.
    case '1':
      static_cast<void>(marked());
      drop_mark();
      return true;
    case 'J': push(builder_.integer(number<std::int32_t>())); return true;
    case 'K': push(builder_.integer(number<std::uint8_t>())); return true;
    case 'M': push(builder_.integer(number<std::uint16_t>())); return true;
    case 'G': push(builder_.real(std::bit_cast<double>(__builtin_bswap64(number<std::uint64_t>())))); return true;
    case 'Q': push(builder_.persistent(pop())); return true;
    case 'T': push_view(NodeKind::text, number<std::uint32_t>()); return true;
    case 'U': push_view(NodeKind::text, number<std::uint8_t>()); return true;
    case 'X': push_view(NodeKind::text, number<std::uint32_t>()); return true;
    case 'e': append_marked(); return true;
    case '}': push(builder_.container(NodeKind::dict)); return true;
    case ']': push(builder_.container(NodeKind::list)); return true;
    case ')': push(builder_.empty_tuple()); return true;
    case 'h': recall(number<std::uint8_t>()); return true;
    case 'j': recall(number<std::uint32_t>()); return true;
    case 'q': remember(number<std::uint8_t>()); return true;
    case 'r': remember(number<std::uint32_t>()); return true;
    case 'o': {
      const auto values = marked();
      if (values.empty()) altered("a class is missing on the stack");
      const NodeId callee = values.front();
      const NodeId args = builder_.tuple(values.subspan(1));
      drop_mark();
      apply(callee, args);
      return true;
    }
    case 'u': {
      const NodeId to = below_mark();
      append_marked_pairs(to, marked());
      drop_mark();
      return true;
    }

    // Protocol 2.
    case 0x80:
      if (number<std::uint8_t>() > 5) fault(PickleStatus::refused, "the protocol is newer than 5");
      return true;
    case 0x81: {
      const NodeId args = pop();
      apply(pop(), args);
      return true;
    }
    case 0x82:
      skip(1);
      push(builder_.foreign());
      return true;
    case 0x83:
      skip(2);
      push(builder_.foreign());
      return true;
    case 0x84:
      skip(4);
      push(builder_.foreign());
      return true;
    case 0x85: push_tuple(1); return true;
    case 0x86: push_tuple(2); return true;
    case 0x87: push_tuple(3); return true;
    case 0x88: push(builder_.boolean(true)); return true;
    case 0x89: push(builder_.boolean(false)); return true;
    case 0x8a: push_long(number<std::uint8_t>()); return true;
    case 0x8b: push_long(number<std::uint32_t>()); return true;

    // Protocol 3.
    case 'B': push_view(NodeKind::bytes, number<std::uint32_t>()); return true;
    case 'C': push_view(NodeKind::bytes, number<std::uint8_t>()); return true;

    // Protocol 4.
    case 0x8c: push_view(NodeKind::text, number<std::uint8_t>()); return true;
    case 0x8d: push_view(NodeKind::text, number<std::uint64_t>()); return true;
    case 0x8e: push_view(NodeKind::bytes, number<std::uint64_t>()); return true;
    case 0x8f: push(builder_.container(NodeKind::set)); return true;
    case 0x90: append_marked(); return true;
    case 0x91: push_container_of_marked(NodeKind::set); return true;
    case 0x92: {
      const NodeId named = pop();
      const NodeId args = pop();
      const NodeId callee = pop();
      const NodeId both[] = {args, named};
      apply(callee, builder_.tuple(both));
      return true;
    }
    case 0x93: {
      const NodeId name = pop();
      push(builder_.global(pop(), name));
      return true;
    }
    case 0x94: remember(memo_.size()); return true;
    case 0x95:
      // Frames only group reads.
      skip(8);
      return true;

    // Protocol 5.
    case 0x96: push_view(NodeKind::bytes, number<std::uint64_t>()); return true;
    case 0x97: push(builder_.foreign()); return true;
    case 0x98: static_cast<void>(top()); return true;
    default: altered("there's no such opcode");
  }
}

PickleResult read_pickle(ByteView data) {
  PickleResult result;
  const bool whole = data.size() <= max_pickle_bytes;
  PickleReader reader(whole ? data : data.first(static_cast<std::size_t>(max_pickle_bytes)));
  try {
    result.pickle = reader.run();
  } catch (PickleFault& fault) {
    result.status = fault.status;
    result.message = std::move(fault.message);
    if (!whole && fault.status == PickleStatus::cut_short) {
      result.status = PickleStatus::refused;
      result.message = "it is larger than 256 MiB";
    }
  }
  result.end = reader.position();
  return result;
}

}  // namespace ckpt::source
