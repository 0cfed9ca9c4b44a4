/*
 * Control data on the emulated GPU. Kernels there compute nothing, but what a program decides by has to be
 * right: sizes, pickled bytes, flags, indices. An operator of PyTorch that launched kernels and whose results
 * are integers or truth values, or that moves elements of any type as they are, is computed once more by
 * PyTorch's own CPU code, on the same memory (the device's memory is the host's), in the order of its stream
 * and in no modelled time. Results of floating point are not computed: small new ones read as zero, on all
 * ranks alike, so that what is decided by a norm or a loss is decided alike; others stay what they were.
 *
 * Compiled against the headers of the PyTorch that it is for, and loaded by the runtime's stand-in.
 */
#include <ATen/Context.h>
#include <ATen/Tensor.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <c10/core/DeviceGuard.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstring>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <vector>

extern "C" {
typedef struct CUstream_st *cudaStream_t;
/* Of the runtime's stand-in: kernels that this thread has launched, and the stream of the last one. */
unsigned long falcon_lab_launched(cudaStream_t *stream);
int falcon_lab_after(cudaStream_t stream, void (*fn)(void *), void (*release)(void *), void *arg);
int cudaStreamSynchronize(cudaStream_t stream);
}

namespace {

using c10::IValue;
using torch::jit::Stack;

/* Of all tensors of one call: larger ones are data, and copying them would take the host's time. */
constexpr int64_t kMost = 16 << 20;

/* Of all results of one call: those that a program may decide by. */
constexpr int64_t kSmall = 4 << 10;

/* They move elements as they are, whatever the type. */
const std::set<std::string> kMovers = {
    "aten::copy_", "aten::fill_", "aten::zero_", "aten::cat", "aten::stack", "aten::clone", "aten::index_select",
    "aten::gather", "aten::_foreach_copy_", "aten::_foreach_zero_", "aten::split_with_sizes_copy",
    "aten::split_copy", "aten::_chunk_cat", "aten::constant_pad_nd", "aten::flip", "aten::roll",
};

/* Their result is for the host, or its size is data: they are computed before they return. */
const std::set<std::string> kSized = {
    "aten::nonzero", "aten::masked_select", "aten::_unique2", "aten::unique_dim", "aten::unique_consecutive",
    "aten::unique_dim_consecutive", "aten::bincount", "aten::repeat_interleave.Tensor", "aten::equal",
};

std::string full_name(const c10::OperatorName &n) {
  return n.overload_name.empty() ? n.name : n.name + "." + n.overload_name;
}

/* The entry behind a handle is private; all releases have it, and only newer ones a way to a kernel. */
auto entry_of(const c10::OperatorHandle &op);
template <auto Member> struct Reveal {
  friend auto entry_of(const c10::OperatorHandle &op) { return op.*Member; }
};
template struct Reveal<&c10::OperatorHandle::operatorDef_>;

bool is_control(const at::Tensor &t) { return c10::isIntegralType(t.scalar_type(), /*includeBool=*/true); }

/* Whether the memory of all elements is there. */
bool is_held(const at::Tensor &t) {
  if (t.layout() != at::kStrided || !t.has_storage()) return false;
  if (t.numel() == 0) return true;
  int64_t last = t.storage_offset();
  for (int64_t d = 0; d < t.dim(); d++) last += (t.size(d) - 1) * t.stride(d);
  return t.storage().data() && (last + 1) * (int64_t)t.element_size() <= (int64_t)t.storage().nbytes();
}

/* Calls fn with every tensor in a value. */
void each(const IValue &v, const std::function<void(const at::Tensor &)> &fn) {
  if (v.isTensor()) {
    if (v.toTensor().defined()) fn(v.toTensor());
  } else if (v.isList()) {
    for (const IValue &item : v.toListRef())
      if (item.isTensor()) each(item, fn);
  }
}

/* The same memory as a tensor of the CPU; a tensor of the CPU as it is now. */
at::Tensor on_host(const at::Tensor &t) {
  if (!t.defined()) return t;
  if (!t.is_cuda()) return t.clone();
  auto options = at::TensorOptions().dtype(t.scalar_type()).device(at::kCPU);
  return at::from_blob(t.data_ptr(), t.sizes(), t.strides(), options);
}

IValue value_on_host(const IValue &v) {
  if (v.isTensor()) return on_host(v.toTensor());
  if (v.isDevice()) return v.toDevice().is_cuda() ? IValue(at::Device(at::kCPU)) : v;
  if (!v.isList()) return v;
  auto from = v.toList();
  c10::impl::GenericList to(from.elementType());
  for (const IValue &item : v.toListRef()) to.push_back(value_on_host(item));
  return to;
}

/* One call that is computed when its stream comes to it. */
struct Call {
  c10::OperatorHandle op;
  Stack args;
  std::vector<at::Tensor> results; /* on the host: where they belong */
};

void say_once(const c10::OperatorHandle &op, const char *why) {
  static std::atomic<int> left{8};
  if (left.fetch_sub(1) <= 0) return;
  const char *end = strchr(why, '\n');
  fprintf(stderr, "falcon lab: %s is not computed here: %.*s\n", full_name(op.operator_name()).c_str(),
          (int)(end ? end - why : (long)strlen(why)), why);
}

std::vector<at::Tensor> call_on_host(const c10::OperatorHandle &op, Stack stack) {
  at::AutoDispatchBelowADInplaceOrView plain;
  op.callBoxed(&stack);
  std::vector<at::Tensor> got;
  for (const IValue &v : stack) each(v, [&](const at::Tensor &t) { got.push_back(t); });
  return got;
}

void run_call(void *arg) {
  auto *c = static_cast<Call *>(arg);
  try {
    auto got = call_on_host(c->op, c->args);
    at::AutoDispatchBelowADInplaceOrView plain;
    for (size_t i = 0; i < got.size() && i < c->results.size(); i++)
      if (got[i].sizes() == c->results[i].sizes() && got[i].data_ptr() != c->results[i].data_ptr())
        c->results[i].copy_(got[i]);
  } catch (const std::exception &e) { /* what it was given was no control data: indices out of range */
    say_once(c->op, e.what());
  }
}

void release_call(void *arg) { delete static_cast<Call *>(arg); }

/* Results of one call of floating point. */
using Results = std::vector<at::Tensor>;

void clear_results(void *arg) {
  at::AutoDispatchBelowADInplaceOrView plain;
  for (at::Tensor &t : *static_cast<Results *>(arg)) t.zero_();
}

void release_results(void *arg) { delete static_cast<Results *>(arg); }

thread_local int writing; /* a kernel that updates in place runs: what it calls is part of it */

/* An operator's kernel for the GPU, and what is computed after it. */
class Computed final : public c10::OperatorKernel {
 public:
  Computed(const c10::KernelFunction &real, const c10::FunctionSchema &schema, bool mover)
      : real_(real), mover_(mover), args_(schema.arguments().size()), returns_(schema.returns().size()) {
    for (size_t i = 0; i < args_; i++)
      if (const auto *alias = schema.arguments()[i].alias_info(); alias && alias->isWrite()) {
        written_.push_back(i);
        whole_ = whole_ && schema.arguments()[i].kwarg_only(); /* out=, which is for results alone */
      }
    if (written_.empty())
      for (const auto &r : schema.returns()) whole_ = whole_ && !r.alias_info();
  }

  void operator()(const c10::OperatorHandle &op, c10::DispatchKeySet keys, Stack *stack) {
    if (writing || !may_matter(*stack)) return real_.callBoxed(op, keys, stack);
    Stack args(stack->end() - (long)args_, stack->end());
    unsigned long before = falcon_lab_launched(nullptr);
    call_real(op, keys, stack);
    cudaStream_t stream = nullptr;
    if (falcon_lab_launched(&stream) != before) compute(op, stream, args, *stack);
  }

 private:
  /* What is written in place tells by its type before the call. */
  bool may_matter(const Stack &stack) const {
    bool matters = whole_ || mover_;
    const IValue *first = stack.data() + stack.size() - args_;
    for (size_t i : written_) each(first[i], [&](const at::Tensor &t) { matters = matters || is_control(t); });
    return matters;
  }

  void call_real(const c10::OperatorHandle &op, c10::DispatchKeySet keys, Stack *stack) {
    struct Inside {
      int by;
      explicit Inside(bool on) : by(on) { writing += by; }
      ~Inside() { writing -= by; }
    } inside(!written_.empty() && !mover_);
    real_.callBoxed(op, keys, stack);
  }

  void compute(const c10::OperatorHandle &op, cudaStream_t stream, const Stack &args, const Stack &after) const {
    int64_t bytes = 0;
    bool matters = mover_, possible = true;
    auto weigh = [&](const at::Tensor &t) {
      bytes += t.numel() * (int64_t)t.element_size();
      possible = possible && is_held(t) && !t.is_conj() && !t.is_neg();
    };
    for (const IValue &v : args) {
      each(v, weigh);
      if (mover_) each(v, [&](const at::Tensor &t) { possible = possible && (t.is_cuda() || t.dim() == 0); });
    }
    std::vector<at::Tensor> results;
    for (auto v = after.end() - (long)returns_; v != after.end(); v++)
      each(*v, [&](const at::Tensor &t) {
        weigh(t);
        matters = matters || is_control(t);
        results.push_back(t);
      });
    for (size_t i : written_) each(args[i], [&](const at::Tensor &t) { matters = matters || is_control(t); });
    if (!matters && whole_ && !are_read(args, results)) clear(stream, results);
    if (!matters || !possible || bytes > kMost) return;
    auto c = std::make_unique<Call>(Call{op, {}, {}});
    at::AutoDispatchBelowADInplaceOrView plain;
    for (const IValue &v : args) c->args.push_back(value_on_host(v));
    for (const at::Tensor &t : results) c->results.push_back(on_host(t));
    falcon_lab_after(stream, run_call, release_call, c.release());
  }

  /* Whether results are in the memory of what is read, as where out= is the argument. */
  bool are_read(const Stack &args, const Results &results) const {
    bool read = false;
    for (size_t i = 0; i < args_; i++) {
      if (std::find(written_.begin(), written_.end(), i) != written_.end()) continue;
      each(args[i], [&](const at::Tensor &t) {
        for (const at::Tensor &r : results)
          read = read || !t.has_storage() || !r.has_storage() || t.storage().data() == r.storage().data();
      });
    }
    return read;
  }

  static void clear(cudaStream_t stream, const Results &results) {
    int64_t bytes = 0;
    auto small = std::make_unique<Results>();
    for (const at::Tensor &t : results) {
      if (!is_held(t)) return;
      bytes += t.numel() * (int64_t)t.element_size();
    }
    if (bytes > kSmall) return;
    at::AutoDispatchBelowADInplaceOrView plain;
    for (const at::Tensor &t : results) small->push_back(on_host(t));
    falcon_lab_after(stream, clear_results, release_results, small.release());
  }

  c10::KernelFunction real_;
  bool mover_, whole_ = true; /* whether results hold nothing but this call's */
  size_t args_, returns_;
  std::vector<size_t> written_;
};

/* An operator that waits for its arguments, and is computed at once. */
class Sized final : public c10::OperatorKernel {
 public:
  explicit Sized(const c10::FunctionSchema &schema) : args_(schema.arguments().size()) {}

  void operator()(const c10::OperatorHandle &op, c10::DispatchKeySet, Stack *stack) {
    at::Device device(at::kCUDA, 0);
    Stack args(stack->end() - (long)args_, stack->end());
    for (const IValue &v : args)
      each(v, [&](const at::Tensor &t) { device = t.is_cuda() ? t.device() : device; });
    c10::DeviceGuard guard(device);
    await_stream(device);
    stack->erase(stack->end() - (long)args_, stack->end());
    at::AutoDispatchBelowADInplaceOrView plain;
    Stack on;
    for (const IValue &v : args) on.push_back(value_on_host(v));
    op.callBoxed(&on);
    for (const IValue &v : on) stack->push_back(v.isTensor() ? on_device(v.toTensor(), device) : v);
  }

 private:
  static at::Tensor on_device(const at::Tensor &t, at::Device device) {
    at::Tensor there = at::empty(t.sizes(), t.options().device(device));
    on_host(there).copy_(t);
    return there;
  }

  /* The current stream is where a kernel is launched now. */
  static void await_stream(at::Device device) {
    cudaStream_t stream = nullptr;
    at::empty({1}, at::TensorOptions().dtype(at::kByte).device(device)).fill_(0);
    falcon_lab_launched(&stream);
    TORCH_CHECK(cudaStreamSynchronize(stream) == 0, "CUDA error: an operation on the stream failed");
  }

  size_t args_;
};

struct Quiet final : c10::WarningHandler {
  void process(const c10::Warning &) override {}
};

/* Whether an operator of this schema can be computed again with the same result. */
bool has_results(const c10::OperatorHandle &op) {
  if (kSized.count(full_name(op.operator_name()))) return true;
  if (op.hasTag(at::Tag::nondeterministic_seeded)) return false;
  for (const auto &a : op.schema().arguments())
    if (a.alias_info() && a.alias_info()->isWrite()) return true;
  for (const auto &r : op.schema().returns())
    if (r.type()->kind() == c10::TypeKind::TensorType || r.type()->kind() == c10::TypeKind::ListType) return true;
  return false;
}

} // namespace

/* Puts itself before the kernels of the GPU. Called once, before anything is on a device. */
extern "C" __attribute__((visibility("default"))) void falcon_lab_operators(void) {
  static auto *registered = new std::vector<c10::RegistrationHandleRAII>(); /* for as long as the process runs */
  Quiet quiet;
  c10::WarningUtils::WarningHandlerGuard guard(&quiet); /* of kernels that are replaced */
  auto &dispatcher = c10::Dispatcher::singleton();
  for (const c10::OperatorName &name : dispatcher.getAllOpNames()) {
    auto op = dispatcher.findOp(name);
    if (name.name.rfind("aten::", 0) != 0 || !op || !op->hasSchema()) continue;
    bool own = op->hasKernelForDispatchKey(c10::DispatchKey::CUDA) || name.name == "aten::copy_"; /* of all devices */
    if (!own || !has_results(*op)) continue;
    const auto &real = entry_of(*op)->op.lookup(c10::DispatchKeySet(c10::DispatchKey::CUDA));
    bool mover = kMovers.count(name.name) > 0;
    c10::KernelFunction kernel =
        kSized.count(full_name(name))
            ? c10::KernelFunction::makeFromBoxedFunctor(std::make_unique<Sized>(op->schema()))
            : c10::KernelFunction::makeFromBoxedFunctor(std::make_unique<Computed>(real, op->schema(), mover));
    registered->push_back(dispatcher.registerImpl(name, c10::DispatchKey::CUDA, std::move(kernel), std::nullopt,
                                                  nullptr, "falcon lab: control data"));
  }
}
