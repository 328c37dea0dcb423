/* The exported dlsym and dlvsym: ask resolve.c, then return its answer or jump on with the
 * arguments and the return address as they came. */

#if defined(__x86_64__)

    .macro entry name, way, caller
    .globl \name
    .type \name, @function
    .p2align 4
\name:
    .cfi_startproc
    endbr64
    pushq %rdi
    .cfi_adjust_cfa_offset 8
    pushq %rsi
    .cfi_adjust_cfa_offset 8
    pushq %rdx
    .cfi_adjust_cfa_offset 8
    movq 24(%rsp), \caller
    call \way
    movq %rdx, %r11
    popq %rdx
    .cfi_adjust_cfa_offset -8
    popq %rsi
    .cfi_adjust_cfa_offset -8
    popq %rdi
    .cfi_adjust_cfa_offset -8
    testq %r11, %r11
    jz 1f
    jmp *%r11
1:  ret
    .cfi_endproc
    .size \name, . - \name
    .endm

    .hidden hami_dlsym_way
    .hidden hami_dlvsym_way
    .text
    entry dlsym, hami_dlsym_way, %rdx
    entry dlvsym, hami_dlvsym_way, %rcx

#elif defined(__aarch64__)

    .macro entry name, way, caller
    .globl \name
    .type \name, %function
    .p2align 4
\name:
    .cfi_startproc
    hint #34 /* bti c */
    stp x29, x30, [sp, #-48]!
    .cfi_def_cfa_offset 48
    .cfi_offset 29, -48
    .cfi_offset 30, -40
    mov x29, sp
    stp x0, x1, [sp, #16]
    str x2, [sp, #32]
    mov \caller, x30
    bl \way
    cbz x1, 1f
    mov x16, x1 /* which a landing pad of a call accepts a jump through */
    ldp x0, x1, [sp, #16]
    ldr x2, [sp, #32]
    ldp x29, x30, [sp], #48
    .cfi_remember_state
    .cfi_restore 29
    .cfi_restore 30
    .cfi_def_cfa_offset 0
    br x16
    .cfi_restore_state
1:  ldp x29, x30, [sp], #48
    .cfi_restore 29
    .cfi_restore 30
    .cfi_def_cfa_offset 0
    ret
    .cfi_endproc
    .size \name, . - \name
    .endm

    .hidden hami_dlsym_way
    .hidden hami_dlvsym_way
    .text
    entry dlsym, hami_dlsym_way, x2
    entry dlvsym, hami_dlvsym_way, x3

#else
#error "dlsym is written for x86_64 and aarch64"
#endif

    .section .note.GNU-stack, "", %progbits
