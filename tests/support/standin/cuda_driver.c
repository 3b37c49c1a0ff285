/* A stand-in for the CUDA driver: the functions that cyclescope calls, over a table that a test
 * fills in, and a count of the calls that ask for a pointer; two devices. Built with the soname of the driver's library. */

#include <stdint.h>
#include <string.h>

enum { MEMORY_TYPE = 2, IS_MANAGED = 8, DEVICE_ORDINAL = 9 }; /* CUpointer_attribute */
enum { HOST = 1, DEVICE = 2 };                                /* CUmemorytype */
enum { SUCCESS = 0, INVALID_VALUE = 1 };                      /* CUresult */

static struct {
    uint64_t pointer;
    unsigned memory_type;
    int ordinal;
    unsigned char managed;
} table[1024];
static unsigned entries, calls;
static int failure = SUCCESS;

void standin_set(uint64_t pointer, unsigned memory_type, int ordinal, int managed)
{
    table[entries].pointer = pointer;
    table[entries].memory_type = memory_type;
    table[entries].ordinal = ordinal;
    table[entries].managed = managed != 0;
    entries++;
}

/* From now on every call fails with this result. */
void standin_fail(int result) { failure = result; }

unsigned standin_calls(void) { return calls; }

#ifndef WITHOUT_ATTRIBUTES
int cuPointerGetAttributes(unsigned count, const int *attributes, void **values, uint64_t pointer)
{
    unsigned memory_type = 0;
    int ordinal = -2;
    unsigned char managed = 0;
    calls++;
    if (failure != SUCCESS)
        return failure;
    for (unsigned i = 0; i < entries; i++) {
        if (table[i].pointer == pointer) {
            memory_type = table[i].memory_type;
            ordinal = table[i].ordinal;
            managed = table[i].managed;
        }
    }
    for (unsigned i = 0; i < count; i++) {
        if (attributes[i] == MEMORY_TYPE)
            memcpy(values[i], &memory_type, sizeof memory_type);
        else if (attributes[i] == DEVICE_ORDINAL)
            memcpy(values[i], &ordinal, sizeof ordinal);
        else if (attributes[i] == IS_MANAGED)
            memcpy(values[i], &managed, sizeof managed);
        else
            return INVALID_VALUE;
    }
    return SUCCESS;
}
#endif

int cuDeviceGetCount(int *count)
{
    *count = 2;
    return failure;
}

int cuDeviceGet(int *device, int ordinal)
{
    *device = 100 + ordinal; /* A handle, and not the number itself. */
    return failure;
}

int cuDeviceGetName(char *name, int length, int device)
{
    strncpy(name, device == 100 ? "Stand-in A" : "Stand-in B", (size_t)length);
    return failure;
}
