// A list of the API, page by page. The first pages are asked for again while they are looked at.
import { get, Refusal, said } from './api.svelte'

interface Page<T> {
  token: string
  rows: T[]
}

export class Listing<T> {
  pages = $state.raw<Page<T>[]>([])
  next = $state('')
  total = $state(0)
  loading = $state(true)
  error = $state('')
  private generation = 0

  constructor(
    private where: string,
    private field: string,
    private size: number,
    readonly key: (row: T) => string,
  ) {}

  query: Record<string, string | undefined> = {}

  get rows(): T[] {
    const seen = new Set<string>()
    return this.pages.flatMap((p) => p.rows.filter((r) => !seen.has(this.key(r)) && seen.add(this.key(r))))
  }

  // ask begins anew with another query; what is shown stays until the answer is there.
  ask(query: Record<string, string | undefined>): void {
    if (JSON.stringify(query) === JSON.stringify(this.query)) return
    this.query = query
    this.generation++
    this.loading = true
  }

  // refresh reads the first pages again, at most so many.
  async refresh(signal?: AbortSignal, pages = 5): Promise<void> {
    const generation = this.generation
    try {
      const fresh: Page<T>[] = []
      let token = ''
      let total = 0
      const wanted = Math.min(pages, Math.max(1, this.pages.length))
      do {
        const a = await this.page(token, signal)
        if (!token) total = a.total
        fresh.push({ token, rows: a.rows })
        token = a.next
      } while (token && fresh.length < wanted)
      if (generation !== this.generation) return
      // Pages further down stay where they still begin as they did.
      const rest = this.loading ? [] : this.pages.slice(fresh.length)
      if (rest[0] && rest[0].token === token) this.pages = [...fresh, ...rest]
      else {
        this.pages = fresh
        this.next = token
      }
      this.total = total
      this.error = ''
    } catch (e) {
      if (generation === this.generation && !signal?.aborted) {
        this.error = said(e)
        // Rows of another query would stand under the words of this one.
        if (e instanceof Refusal) this.forget()
      }
      throw e
    } finally {
      if (generation === this.generation) this.loading = false
    }
  }

  private forget(): void {
    this.pages = []
    this.next = ''
    this.total = 0
  }

  private fetching = false

  async more(): Promise<void> {
    if (!this.next || this.fetching) return
    this.fetching = true
    const generation = this.generation
    try {
      const token = this.next
      const a = await this.page(token)
      if (generation !== this.generation || token !== this.next) return
      this.pages = [...this.pages, { token, rows: a.rows }]
      this.next = a.next
    } catch (e) {
      this.error = said(e)
    } finally {
      this.fetching = false
    }
  }

  private async page(token: string, signal?: AbortSignal): Promise<{ rows: T[]; next: string; total: number }> {
    const a = await get<Record<string, unknown>>(
      this.where,
      { ...this.query, page_size: this.size, page_token: token },
      signal,
    )
    return {
      rows: (a[this.field] as T[] | undefined) ?? [],
      next: (a.next_page_token as string | undefined) ?? '',
      total: (a.total_size as number | undefined) ?? 0,
    }
  }
}
