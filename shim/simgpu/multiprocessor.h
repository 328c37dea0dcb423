/* What a multiprocessor of each generation has, as the CUDA programming guide says. */
#ifndef SIM_MULTIPROCESSOR_H
#define SIM_MULTIPROCESSOR_H

/* Threads that can be resident at once. */
static inline unsigned int sim_resident_threads(int major, int minor)
{
    if (major == 7 && minor == 5)
        return 1024;
    if ((major == 8 && minor > 0) || major == 12)
        return 1536;
    return 2048;
}

static inline unsigned int sim_cores(int major, int minor)
{
    return major == 7 || (major == 6 && minor == 0) || (major == 8 && minor == 0) ? 64 : 128;
}

#endif
