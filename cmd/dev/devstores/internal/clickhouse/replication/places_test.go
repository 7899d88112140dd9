package replication

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"trafficd/cmd/dev/launch"
	"trafficd/cmd/dev/needs"
)

// The first instructions of each function, in hexadecimal. ?? matches any byte.
const (
	// push r14; push rbx; sub rsp, 0x48; mov r14, [rsi]; movsx rcx, byte [r14+…]; test rcx, rcx; …
	addressCode = "41 56 53 48 83 ec 48 4c 8b 36 49 0f be 8e ?? ?? 00 00 48 85 c9 49 8b 96"
	// mov rax, [rsi]; cmp byte [rax+…], 0; js …; add rax, …; copy of 24 bytes from [rax] to [rdi]; ret
	schemeCode = "48 8b 06 80 b8 ?? ?? 00 00 00 78 ?? 48 05 ?? ?? 00 00 48 8b 48 10 48 89 4f 10 c5 f8 10 00 c5 f8 11 07 48 89 f8 c3"
	// je …; comparison of a length with 32, and of as many characters with a string; je …
	handlerCode = "0f 84 ?? ?? ?? ?? 84 c9 0f 98 c2 48 83 f8 20 40 0f 94 c6 40 20 d6 40 80 fe 01 75 ?? 49 8b 07 c5 fe 6f 00 " +
		"c5 fd ef 05 ?? ?? ?? ?? c4 e2 7d 17 c0 74"
	handlerName = "InterserverIOHTTPHandler-factory"
	// mov rax, [rbx+0xc0]; copy of a string from [rax] to the stack
	credentialsCode = "48 8b 83 c0 00 00 00 80 78 17 00 0f 88 ?? ?? ?? ?? 48 8b 48 10 48 89 8c 24"
)

// TestPlaces finds the places in the library by the code of the functions.
func TestPlaces(t *testing.T) {
	needs.Everything(t, "the ClickHouse library")
	cache := os.Getenv("TRAFFICD_CACHE")
	if cache == "" {
		root, err := launch.ModuleRoot()
		require.NoError(t, err)
		cache = filepath.Join(root, ".cache", "devstores")
	}
	library := filepath.Join(cache, "libchdb-"+Version, "libchdb.so")
	if _, err := os.Stat(library); err != nil {
		devstores, err := launch.Program(t.Context(), "devstores")
		require.NoError(t, err)
		text, err := exec.CommandContext(t.Context(), devstores, "fetch").CombinedOutput()
		require.NoError(t, err, "%s", text)
	}
	found, err := find(library)
	require.NoError(t, err)
	t.Logf("%#v", found)
	require.Equal(t, known, found)
}

// find returns the places in a library.
func find(library string) (p places, err error) {
	file, err := os.Open(library)
	if err != nil {
		return p, err
	}
	defer file.Close()
	f, err := elf.NewFile(file)
	if err != nil {
		return p, err
	}
	size, err := file.Seek(0, io.SeekEnd)
	if err != nil {
		return p, err
	}
	image, err := unix.Mmap(int(file.Fd()), 0, int(size), unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		return p, err
	}
	defer func() { _ = unix.Munmap(image) }()
	section := f.Section(".text")
	text := image[section.Offset:][:section.Size]
	only := func(name, code string) (at uint64) {
		all := matches(text, code)
		if len(all) != 1 {
			err = fmt.Errorf("the code of %s was found %d times", name, len(all))
			return 0
		}
		return section.Addr + uint64(all[0])
	}
	p.address = only("getInterserverIOAddress", addressCode)
	p.handler = only("createHandlerFactory", handlerCode)
	p.credentials = only("fetchPart", credentialsCode)
	if err != nil {
		return p, err
	}
	for _, at := range matches(text, schemeCode) {
		if at := section.Addr + uint64(at); at > p.address {
			p.scheme = at
			break
		}
	}
	// The end of the comparison refers to the name, and the je after it leads to the branch.
	length := uint64(len(strings.Fields(handlerCode)))
	end := p.handler + length + 1 // after the operand of je
	code := text[p.handler-section.Addr:]
	p.handlerBranch = end + uint64(int64(int8(code[length])))
	const reference = 39 // of the operand of vpxor
	name := p.handler + reference + 4 + uint64(int64(int32(binary.LittleEndian.Uint32(code[reference:]))))
	data := f.Section(".rodata")
	if got := string(image[data.Offset+name-data.Addr:][:len(handlerName)]); got != handlerName {
		return p, fmt.Errorf("createHandlerFactory compares with %q", got)
	}
	return p, nil
}

// matches returns the offsets in text at which code is.
func matches(text []byte, code string) (all []int) {
	var want []int // -1: any byte
	for _, word := range strings.Fields(code) {
		b, err := hex.DecodeString(word)
		if err != nil {
			want = append(want, -1)
			continue
		}
		want = append(want, int(b[0]))
	}
	start, longest := 0, []byte{} // the longest part without ??
	for i := 0; i < len(want); i++ {
		var part []byte
		first := i
		for ; i < len(want) && want[i] >= 0; i++ {
			part = append(part, byte(want[i]))
		}
		if len(part) > len(longest) {
			start, longest = first, part
		}
	}
	for from := 0; ; {
		i := bytes.Index(text[from:], longest)
		if i < 0 {
			return all
		}
		at := from + i - start
		from += i + 1
		if at < 0 || at+len(want) > len(text) {
			continue
		}
		same := true
		for k, b := range want {
			same = same && (b < 0 || text[at+k] == byte(b))
		}
		if same {
			all = append(all, at)
		}
	}
}

func TestMatches(t *testing.T) {
	require.Equal(t, []int{1, 5}, matches([]byte{9, 1, 7, 3, 0, 1, 8, 3, 1}, "01 ?? 03"))
	require.Empty(t, matches([]byte{1, 7}, "01 ?? 03"))
}
