// Package replication makes the ClickHouse library of devstores serve other replicas. It patches
// the machine code of that library in memory: README.md says why, how the places were found and
// when to delete this package.
package replication

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"net/netip"
	"runtime"
	"unsafe"

	"github.com/prometheus/procfs"
	"golang.org/x/sys/unix"

	"trafficd/cmd/dev/must"
)

// Version is the version of the library that Enable can patch.
const Version = "26.7.3-stable.1"

const platform = "linux/amd64"

// places are virtual addresses in the library.
type places struct {
	address       uint64 // Context::getInterserverIOAddress
	scheme        uint64 // Context::getInterserverScheme
	handler       uint64 // je to a different handler, in createHandlerFactory
	handlerBranch uint64 // the branch that creates the handler for replicas
	credentials   uint64 // mov rax, [rbx+0xc0] in fetchPart
}

// known are the places in the library of Version. TestPlaces finds them.
var known = places{
	address: 0x1417c9c0, scheme: 0x1417cac0, handler: 0x18395d32, handlerBranch: 0x18395dbc, credentials: 0x179c6000,
}

var noCredentials [256]byte // zeros, which are two empty std::strings

// Enable patches the library that this process has loaded from a file, before its main runs.
// address is where the other replicas reach this one. Enable compares the bytes at each place
// first, so it rejects any other version of the library.
func Enable(library, address string) (err error) {
	defer must.Return(&err)
	if own := runtime.GOOS + "/" + runtime.GOARCH; own != platform {
		return fmt.Errorf("cannot run a cluster with the library on %s, only on %s: put a clickhouse binary on PATH", own, platform)
	}
	to, base := must.Get(netip.ParseAddrPort(address)), must.Get(loadedAt(library))
	credentials := uintptr(unsafe.Pointer(&noCredentials[0]))
	if credentials>>31 != 0 {
		return fmt.Errorf("cannot run a cluster: this program's data is at %#x, above 2 GiB; build it with -buildmode=exe", credentials)
	}
	port := to.Port()
	writeAddress := append(stringCode(to.Addr().String()), 0x66, 0xc7, 0x47, 0x18, byte(port), byte(port>>8)) // mov word [rdi+0x18], port
	returnResult := []byte{0x48, 0x89, 0xf8, 0xc3}                                                            // mov rax, rdi; ret
	for _, p := range []struct {
		at         uint64
		want, code []byte
	}{
		{known.address, []byte{0x41, 0x56, 0x53, 0x48, 0x83, 0xec, 0x48, 0x4c, 0x8b, 0x36}, append(writeAddress, returnResult...)},
		{known.scheme, []byte{0x48, 0x8b, 0x06, 0x80, 0xb8, 0x87, 0x01, 0x00, 0x00, 0x00}, append(stringCode("http"), returnResult...)},
		{known.handler, []byte{0x0f, 0x84}, binary.LittleEndian.AppendUint32([]byte{0x0f, 0x84}, uint32(known.handlerBranch-(known.handler+6)))},
		{known.credentials, []byte{0x48, 0x8b, 0x83, 0xc0, 0, 0, 0}, // mov rax, imm32
			binary.LittleEndian.AppendUint32([]byte{0x48, 0xc7, 0xc0}, uint32(credentials))},
	} {
		must.Do(patch(base+uintptr(p.at), p.want, p.code), fmt.Sprintf("cannot run a cluster with %s: at %#x", library, p.at))
	}
	return nil
}

// stringCode returns machine code that stores text (at most 22 bytes) at [rdi] as a short
// std::string: 24 bytes, the last of which holds the length.
func stringCode(text string) (code []byte) {
	var s [24]byte
	s[23] = byte(copy(s[:22], text))
	for i := range 3 { // movabs rax, …; mov [rdi+8i], rax
		code = append(append(code, 0x48, 0xb8), s[8*i:8*i+8]...)
		code = append(code, 0x48, 0x89, 0x47, byte(8*i))
	}
	return code
}

// patch replaces the instructions at an address, which must begin with want.
func patch(at uintptr, want, code []byte) error {
	target := at
	have := unsafe.Slice(*(**byte)(unsafe.Pointer(&target)), max(len(want), len(code))) // memory of the library, not Go's
	if !bytes.HasPrefix(have, want) {
		return fmt.Errorf("found % x, expected % x: the library is not version %s", have[:len(want)], want, Version)
	}
	page := at &^ 4095
	pages := unsafe.Slice(*(**byte)(unsafe.Pointer(&page)), int(at-page)+len(code)+4096)
	if err := unix.Mprotect(pages, unix.PROT_READ|unix.PROT_WRITE|unix.PROT_EXEC); err != nil {
		return err
	}
	copy(have, code)
	return unix.Mprotect(pages, unix.PROT_READ|unix.PROT_EXEC)
}

func loadedAt(library string) (base uintptr, err error) {
	defer must.Return(&err)
	for _, m := range must.Get(must.Get(procfs.Self()).ProcMaps()) {
		if m.Pathname == library && m.Offset == 0 {
			return m.StartAddr, nil
		}
	}
	return 0, fmt.Errorf("%s is not loaded", library)
}
