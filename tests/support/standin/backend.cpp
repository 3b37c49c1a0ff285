// A backend outside of PyTorch, whose memory is the host's: as much as tensors need to exist.
#include <ATen/EmptyTensor.h>
#include <c10/core/Allocator.h>
#include <c10/core/impl/alloc_cpu.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <torch/library.h>
#include <atomic>

static std::atomic<int64_t> in_use{0};

struct Block { size_t size; void* data; };

static void give_back(void* context) {
    auto* block = static_cast<Block*>(context);
    in_use -= static_cast<int64_t>(block->size);
    c10::free_cpu(block->data);
    delete block;
}

struct Allocator final : c10::Allocator {
    c10::DataPtr allocate(size_t size) override {
        auto* block = new Block{size, c10::alloc_cpu(size)};
        in_use += static_cast<int64_t>(size);
        return {block->data, block, &give_back, c10::Device(c10::DeviceType::PrivateUse1, 0)};
    }
    c10::DeleterFnPtr raw_deleter() const override { return &give_back; }
    void copy_data(void* to, const void* from, size_t size) const override { default_copy_data(to, from, size); }
};

static Allocator allocator;
REGISTER_ALLOCATOR(c10::DeviceType::PrivateUse1, &allocator);

struct Guard final : c10::impl::DeviceGuardImplInterface {
    c10::DeviceType type() const override { return c10::DeviceType::PrivateUse1; }
    c10::Device exchangeDevice(c10::Device device) const override { return device; }
    c10::Device getDevice() const override { return {c10::DeviceType::PrivateUse1, 0}; }
    void setDevice(c10::Device) const override {}
    void uncheckedSetDevice(c10::Device) const noexcept override {}
    c10::Stream getStream(c10::Device device) const noexcept override { return c10::Stream(c10::Stream::DEFAULT, device); }
    c10::Stream exchangeStream(c10::Stream stream) const noexcept override { return stream; }
    c10::DeviceIndex deviceCount() const noexcept override { return 1; }
    void record(void**, const c10::Stream&, c10::DeviceIndex, c10::EventFlag) const override {}
    void block(void*, const c10::Stream&) const override {}
    bool queryEvent(void*) const override { return true; }
    void destroyEvent(void*, c10::DeviceIndex) const noexcept override {}
};
C10_REGISTER_GUARD_IMPL(PrivateUse1, Guard);

static at::Tensor empty(at::IntArrayRef size, std::optional<at::ScalarType> dtype, std::optional<at::Layout>,
                        std::optional<at::Device>, std::optional<bool>, std::optional<at::MemoryFormat> format) {
    const c10::DispatchKeySet keys(c10::DispatchKey::PrivateUse1);
    return at::detail::empty_generic(size, &allocator, keys, dtype.value_or(at::kFloat), format);
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) { m.impl("empty.memory_format", &empty); }

extern "C" int64_t bytes_in_use() { return in_use; }
