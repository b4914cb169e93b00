// SPDX-License-Identifier: Apache-2.0

package journal

import (
	"bytes"
	"hash/crc32"
	"strings"
	"unsafe"
)

const (
	headerVersion = "weft-journal v1"
	crcDigits     = 8
	hexDigits     = "0123456789abcdef"
)

func header(boot string) string { return headerVersion + " boot=" + boot }

// checksum returns the digits of the CRC-32 of text.
func checksum(text []byte) (digits [crcDigits]byte) {
	sum := crc32.ChecksumIEEE(text)
	for i := range digits {
		digits[i] = hexDigits[sum>>28]
		sum <<= 4
	}
	return digits
}

// appendLine appends the line of an entry to b.
func appendLine(b []byte, entry string) []byte {
	sum := checksum(unsafe.Slice(unsafe.StringData(entry), len(entry)))
	b = append(b, sum[:]...)
	b = append(b, ' ')
	b = append(b, entry...)
	return append(b, '\n')
}

// entryOf returns the entry of a line without its newline, or why it has none.
// The entry shares the line's memory.
func entryOf(line []byte) (entry, reason string) {
	if len(line) <= crcDigits || line[crcDigits] != ' ' {
		return "", "it does not begin with a checksum of eight digits and a space"
	}
	text := line[crcDigits+1:]
	// Digits are written rather than read: whether one is a letter is a branch
	// that no processor can predict, and eight of them per line were a fifth
	// of a replay.
	if checksum(text) != [crcDigits]byte(line) {
		if len(bytes.Trim(line[:crcDigits], hexDigits)) > 0 {
			return "", "its checksum is not lower-case hexadecimal"
		}
		return "", "its checksum does not match"
	}
	return unsafe.String(unsafe.SliceData(text), len(text)), ""
}

// checkEntry returns an error for what would not come back as one entry.
func checkEntry(entry string) error {
	switch {
	case entry == "":
		return &EntryError{Reason: "it is empty"}
	case strings.IndexByte(entry, '\n') >= 0:
		return &EntryError{Text: shorten(entry), Reason: "it contains a newline"}
	}
	return nil
}

// scan calls visit for each complete line of data, which begins at this offset
// of the file, and returns the number of complete lines and the offset of
// their end. What follows is a torn tail.
func scan(data []byte, offset int64, visit func(n int, offset int64, line []byte) error) (lines int, end int64, err error) {
	for {
		i := bytes.IndexByte(data, '\n')
		if i < 0 {
			return lines, offset, nil
		}
		if err := visit(lines, offset, data[:i]); err != nil {
			return lines, offset, err
		}
		lines++
		offset += int64(i) + 1
		data = data[i+1:]
	}
}
